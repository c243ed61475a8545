#!/usr/bin/env bash
# Fuzzes with libFuzzer: run.sh SECONDS [TARGET...], all targets by default, in sequence, each for
# that time. Needs a C++ compiler, for libFuzzer itself. Inputs that fail are written to artifacts/,
# and the exit status is then not 0.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?run.sh SECONDS [TARGET...]}
shift
[ $# -gt 0 ] || set -- ../seeds/*

# The flags that cargo-fuzz sets, without the sanitizers, which a stable compiler does not have.
export RUSTFLAGS="--cfg fuzzing -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-pc-table
    -C llvm-args=-sanitizer-coverage-trace-compares"
# With an explicit target, RUSTFLAGS do not apply to build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$host"

mkdir -p artifacts
failed=0
for target in "${@##*/}"; do
    mkdir -p "corpus/$target"
    folders=("corpus/$target" "../seeds/$target")
    stock=../../interop/work/corpus/$target
    [ ! -d "$stock" ] || folders+=("$stock")
    echo "== $target"
    EVENKEEL_FUZZ_TARGET=$target "${CARGO_TARGET_DIR:-target}/$host/release/target" -max_total_time="$seconds" \
        -timeout=30 -max_len=16384 -artifact_prefix="artifacts/$target-" "${folders[@]}" \
        2> "artifacts/$target.log" || failed=1
    grep -E "panicked|SUMMARY|^Done" -A 1 "artifacts/$target.log" || true
done
exit $failed
