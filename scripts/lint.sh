# ./run fmt and ./run lint. Sourced by ./run.
# shellcheck shell=bash

cpp_sources() { git ls-files -co --exclude-standard '*.cc' '*.h'; }
python_sources() { git ls-files -co --exclude-standard '*.py'; }
shell_sources() { echo run; git ls-files -co --exclude-standard '*.sh' '*.sbatch' '.ci/run'; }

format_sources() {
  cpp_sources | xargs clang-format -i
  web_npm run format
  python_sources | xargs "$DEPS/pytest/bin/ruff" format --quiet
}

lint_format() { cpp_sources | xargs clang-format --dry-run --Werror; }
lint_shell() { shell_sources | sort -u | xargs shellcheck -x; }

lint_python() {
  # Chained, since `set -e` does not count where a caller asks for the outcome. The trainer's tests by
  # themselves, since both folders have a conftest.py.
  python_sources | xargs "$DEPS/pytest/bin/ruff" check --quiet \
    && python_sources | xargs "$DEPS/pytest/bin/ruff" format --check --quiet \
    && "$DEPS/pytest/bin/mypy" --no-error-summary deps tests/e2e tests/packages deploy/packages \
    && "$DEPS/pytest/bin/mypy" --no-error-summary tests/python/trainer
}

# The dashboard: types by tsc, style and the rest by biome.
lint_web() { web_npm run check; }

# Dockerfiles by hadolint, manifests by Kubernetes' own schemas.
lint_deploy() {
  setup_deploy && "$DEPS/deploy/bin/hadolint" deploy/docker/*.Dockerfile \
    && "$DEPS/deploy/bin/kubernetes-validate" --strict --quiet deploy/kubernetes/*.yaml
}

lint_proto() { "$DEPS/pytest/bin/python" tests/lint/proto_rules.py proto; }
lint_includes() {
  "$DEPS/pytest/bin/python" tests/lint/include_rules_test.py --quiet && "$DEPS/pytest/bin/python" tests/lint/include_rules.py
}

# Sources are compiled eight at once by the sanitizer presets, where private names meet.
lint_names() {
  "$DEPS/pytest/bin/python" tests/lint/unique_names_test.py --quiet && "$DEPS/pytest/bin/python" tests/lint/unique_names.py
}

lint_tidy() {
  python3 tests/lint/compile_commands.py build/release build/tidy
  # Sources outside the trainer: those that include torch take minutes each.
  cpp_sources | grep '\.cc$' | grep -E '^(common|server|agent|cli|trainer/data)/' \
    | xargs -P "$JOBS" -n 4 clang-tidy -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*' 2>/dev/null
}

run_lint() {
  local step
  for step in format shell python web deploy proto includes names tidy; do
    say "lint: $step"
    "lint_$step"
  done
  say "lint is clean"
}
