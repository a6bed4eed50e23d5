// RUN: %nova-opt %s --approximate-exp | %filecheck %s

// Only bf16 depends on it: one product, one instruction.
// CHECK-LABEL: func.func @rounded(
// CHECK: %[[P:.*]] = arith.mulf %arg0, %{{.*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[P]])
// CHECK-NOT: math.exp
func.func @rounded(%x: f32) -> bf16 {
  %one = arith.constant 1.0 : f32
  %0 = math.exp %x : f32
  %1 = arith.addf %0, %one : f32
  %2 = arith.divf %x, %1 : f32
  %3 = arith.truncf %2 : f32 to bf16
  return %3 : bf16
}

// An f32 depends on it as well.
// CHECK-LABEL: func.func @wide(
// CHECK: math.exp
func.func @wide(%x: f32) -> (f32, bf16) {
  %0 = math.exp %x : f32
  %1 = arith.truncf %0 : f32 to bf16
  return %0, %1 : f32, bf16
}

// The argument is the difference of a bf16 and an f32, for the sum of a reduction.
// CHECK-LABEL: func.func @narrow(
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"
// CHECK-NOT: math.exp
func.func @narrow(%x: bf16, %y: f32, %sum: f32) -> f32 {
  %0 = arith.extf %x : bf16 to f32
  %1 = arith.subf %y, %0 : f32
  %2 = arith.negf %1 : f32
  %3 = arith.subf %2, %y : f32
  %4 = math.exp %3 : f32
  %5 = arith.addf %sum, %4 fastmath<reassoc,contract> : f32
  return %5 : f32
}

// An f32 that someone sees, of the same argument.
// CHECK-LABEL: func.func @seen(
// CHECK: math.exp
func.func @seen(%x: bf16, %y: f32) -> f32 {
  %0 = arith.extf %x : bf16 to f32
  %1 = arith.subf %0, %y : f32
  %2 = math.exp %1 : f32
  %3 = arith.addf %2, %y : f32
  return %3 : f32
}

// log2 e is a factor of the constants 2 and 3, with the sign of the negation.
// CHECK-LABEL: func.func @folded(
// CHECK: %[[S:.*]] = arith.mulf %arg0, %arg0 : f32
// CHECK: %[[A:.*]] = arith.constant -2.88539
// CHECK: %[[P:.*]] = arith.mulf %[[S]], %[[A]] : f32
// CHECK: %[[B:.*]] = arith.constant -4.32808
// CHECK: %[[Q:.*]] = arith.addf %[[P]], %[[B]] : f32
// CHECK: %[[T:.*]] = arith.mulf %arg0, %[[Q]] : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[T]])
func.func @folded(%x: f32) -> bf16 {
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %three = arith.constant 3.0 : f32
  %0 = arith.mulf %x, %x : f32
  %1 = arith.mulf %0, %two : f32
  %2 = arith.addf %1, %three : f32
  %3 = arith.mulf %x, %2 : f32
  %4 = arith.negf %3 : f32
  %5 = math.exp %4 : f32
  %6 = arith.addf %5, %one : f32
  %7 = arith.divf %x, %6 : f32
  %8 = arith.truncf %7 : f32 to bf16
  return %8 : bf16
}
