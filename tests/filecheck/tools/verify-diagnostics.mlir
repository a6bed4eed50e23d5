// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @next_line() -> i32 {
  // expected-error @+1 {{op has 0 operands, but enclosing function (@next_line) returns 1}}
  return
}

// -----

func.func @same_line() -> i32 {
  return // expected-error {{op has 0 operands}}
}

// -----

func.func @line_above() -> i32 {
  return
  // expected-error @-1 {{op has 0 operands}}
}

// -----

// A place that is named counts lines without expectations; a regular expression is searched.
func.func @named_place() -> i32 {
  // expected-error-re @below {{has {{[0-9]+}} operands, but}}
  // expected-note @below {{see current operation}}
  return
}

// -----

func.func @above() -> i32 {
  return
  // expected-error @above {{op has 0 operands}}
}

// -----

// Errors of the parser count as well.
func.func @syntax() {
  // expected-error @+1 {{custom op 'no_such_op' is unknown}}
  no_such_op
}

// -----

func.func @right() {
  return
}
