#!/bin/sh
# Builds the fuzzers in FUZZ_FOLDER and runs each for FUZZ_SECONDS; fails on the first finding.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
seconds=${FUZZ_SECONDS:-600}
clang=${CLANG:-clang}
if ! command -v "$clang" > /dev/null; then
    echo "make fuzz needs clang with libFuzzer: apt-get install clang" >&2
    exit 1
fi
source=src/trellis/deploy/c/source
build=${FUZZ_FOLDER:-build/fuzz}
mkdir -p $build/found
PYTHONPATH=src "$python" fuzz/seeds.py $build/seeds
flags="-g -O1 -std=gnu99 -march=native -I$source
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
    -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION"
"$clang" $flags -o $build/reader fuzz/reader.c $source/native.c $source/reader.c \
    $source/plan.c $source/single.c $source/lanes.c $source/whole.c -lm
"$clang" $flags -o $build/recording fuzz/recording.c -lm
for name in reader recording; do
    echo "$name: $seconds seconds"
    mkdir -p $build/$name.corpus
    $build/$name -max_total_time=$seconds -max_len=8192 -timeout=20 -print_final_stats=1 \
        -verbosity=0 -artifact_prefix=$build/found/$name- $build/$name.corpus $build/seeds/$name
done
echo "no finding"
