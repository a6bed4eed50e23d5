// RUN: %nova-opt %s --fuse-multiply-adds | %filecheck %s

// Only bf16 depends on the sums: each is one instruction, with the sign in an operand.
// CHECK-LABEL: func.func @rounded(
// CHECK-NOT: arith.mulf
// CHECK: %[[N:.*]] = arith.constant -3.000000e+00 : f32
// CHECK: %[[F:.*]] = math.fma %arg0, %arg1, %[[N]] : f32
// CHECK: %[[M:.*]] = arith.negf %[[F]] : f32
// CHECK: math.fma %[[M]], %arg1, %arg0 : f32
func.func @rounded(%x: f32, %y: f32) -> bf16 {
  %three = arith.constant 3.0 : f32
  %0 = arith.mulf %x, %y : f32
  %1 = arith.subf %0, %three : f32
  %2 = arith.mulf %1, %y : f32
  %3 = arith.subf %x, %2 : f32
  %4 = arith.truncf %3 : f32 to bf16
  return %4 : bf16
}

// An f32 depends on the sum.
// CHECK-LABEL: func.func @wide(
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: math.fma
func.func @wide(%x: f32, %y: f32) -> (f32, bf16) {
  %0 = arith.mulf %x, %y : f32
  %1 = arith.addf %0, %y : f32
  %2 = arith.truncf %1 : f32 to bf16
  return %1, %2 : f32, bf16
}

// The product has another use, which needs it.
// CHECK-LABEL: func.func @shared(
// CHECK: arith.mulf
// CHECK: arith.addf
func.func @shared(%x: f32, %y: f32) -> (bf16, f32) {
  %0 = arith.mulf %x, %y : f32
  %1 = arith.addf %0, %y : f32
  %2 = arith.truncf %1 : f32 to bf16
  return %2, %0 : bf16, f32
}
