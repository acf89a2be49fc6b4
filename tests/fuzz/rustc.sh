#!/bin/sh
# Cargo's RUSTC_WRAPPER: AddressSanitizer, and the options in MEMTRACE_RUSTC, in memtrace's own crates. Of what
# they depend on the sources are others', and to build them all so takes three times as long.
case " $* " in
*" --crate-name memtrace "* | *" --crate-name memtrace_abi "* | *" --crate-name memtrace_fuzz "*)
    exec "$@" -Zsanitizer=address $MEMTRACE_RUSTC
    ;;
esac
exec "$@"
