// RUN: %nova-opt %s --stablehlo-to-linalg --linalg-to-device-kernels='serial-work=0' --kernels-to-device-buffers | %filecheck %s

// The branch is the host's; the exponential behind it is the device's.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.device = "cpu"
// CHECK: scf.if
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-NOT: nova.device
// CHECK: math.exp
// CHECK-LABEL: func.func @main(
// CHECK: call @kernel_0
// CHECK: call @kernel_1
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
