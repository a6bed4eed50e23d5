// RUN: not %nova-opt %s --split-input-file 2>&1 | %filecheck %s

// Every broken part is reported, at its line in the file, and the others are printed.

func.func @first() {
  no_such_op
  return
}

// CHECK: split-input-file-errors.mlir:6:3: error: custom op 'no_such_op' is unknown
// CHECK-NEXT: {{^}}  no_such_op{{$}}
// CHECK-NEXT: {{^}}  ^{{$}}

// -----

func.func @second() -> i32 {
  return
}

// CHECK: split-input-file-errors.mlir:17:3: error: 'func.return' op has 0 operands
// CHECK-NEXT: {{^}}  return{{$}}
// CHECK-NEXT: {{^}}  ^{{$}}

// -----

// CHECK: func.func @third
func.func @third() {
  return
}
