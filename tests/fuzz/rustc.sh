#!/bin/sh
# Cargo's RUSTC_WRAPPER: AddressSanitizer, and the options in MEMTRACE_RUSTC, in memtrace's own crates. Of what
# they depend on the sources are others', and to build them all so takes three times as long.
case " $* " in
# Build scripts use it, which have no sanitizer to run with.
*" --crate-name memtrace_packed "*) ;;
*" --crate-name memtrace "* | *" --crate-name memtrace_"*)
    exec "$@" -Zsanitizer=address $MEMTRACE_RUSTC
    ;;
esac
exec "$@"
