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
