#!/bin/sh
# Cargo's RUSTC_WRAPPER: coverage for libFuzzer and AddressSanitizer in memtrace's own crates. Of what
# they depend on the sources are others', and to build them all so takes three times as long.
case " $* " in
*" --crate-name memtrace "* | *" --crate-name memtrace_ebpf "* | *" --crate-name memtrace_fuzz "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares \
        -Zsanitizer=address --cfg fuzzing
    ;;
esac
exec "$@"
