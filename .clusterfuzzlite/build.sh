#!/bin/bash -eu
# Makes a program of each target, with its corpus and its dictionary, in $OUT. The base image has
# atheris, and sets $OUT and $WORK.
python3 -m pip install --require-hashes --only-binary :all: -r requirements/dev.txt

# What is imported or read only when it is needed, so that PyInstaller does not see it.
# PyInstaller looks for what it collects in $PYTHONPATH alone.
export PYTHONPATH=$PWD
needed=(--collect-submodules tests.fuzzing --add-data "$PWD/tests/fuzzing:tests/fuzzing")
needed+=(--add-data "$PWD/tests/data/schemas:tests/data/schemas" --hidden-import atheris)
needed+=(--add-data "$PWD/tests/data/settled_rules.txt:tests/data")
for package in kubeyaml policies reports rules sources lint webhook terminal; do
    needed+=(--collect-submodules "$package" --collect-data "$package")
done

for corpus in tests/fuzzing/corpus/*; do
    target=$(basename "$corpus")
    script=$WORK/fuzz_$target.py
    printf 'import sys\nfrom tests.fuzzing.run import main\nmain("%s", sys.argv[1:])\n' \
        "$target" >"$script"
    compile_python_fuzzer "$script" "${needed[@]}"
    zip -q -j "$OUT/fuzz_${target}_seed_corpus.zip" "$corpus"/*
    cp tests/fuzzing/words.dict "$OUT/fuzz_$target.dict"
done
