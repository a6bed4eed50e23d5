// RUN: %nova-opt %s --stablehlo-to-linalg --linalg-to-device-kernels='serial-work=0' --kernels-to-device-buffers | %filecheck %s

// The branches are regions of the device, with kernels of their own; the exponential comes after them.
// CHECK-LABEL: func.func private @branch_1(
// CHECK-SAME: construct = "switch"
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: math.exp
// CHECK-LABEL: func.func private @branch_1_1_kernel_0(
// CHECK: arith.addf
// CHECK-LABEL: func.func private @branch_1_1(
// CHECK-SAME: nova.region
// CHECK-LABEL: func.func private @branch_1_0(
// CHECK-SAME: nova.region
// CHECK-NOT: nova.device
// CHECK-LABEL: func.func @main(
// CHECK: call @branch_1(
// CHECK: call @kernel_0(
func.func @main(%p: tensor<i1>, %x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.add %x, %x : tensor<64x64xf32>
    stablehlo.return %1 : tensor<64x64xf32>
  }, {
    stablehlo.return %x : tensor<64x64xf32>
  }) : (tensor<i1>) -> tensor<64x64xf32>
  %2 = stablehlo.exponential %0 : tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}
