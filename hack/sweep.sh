# To be sourced: takes down the labs of a run of tests.

# sweep [NAME]: labs of this run or an earlier one, whatever became of their processes, but not that one. Their names all begin alike, and nobody's own does.
sweep() {
  target/debug/lab list | awk -v prefix="$LAB_TEST_NAME" -v kept="${1:-}" 'index($1, prefix) == 1 && $1 != kept {print $1}' | while read -r name; do
    target/debug/lab down --name "$name"
  done
}
