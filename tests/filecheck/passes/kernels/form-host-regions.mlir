// RUN: %nova-opt %s --form-host-regions | %filecheck %s
// RUN: %nova-opt %s --form-host-regions='split=false' | %filecheck %s --check-prefix=HOST
// RUN: %nova-opt %s --nova-to-linalg='host-regions=true' --form-kernels='serial-work=0' | %filecheck %s --check-prefix=KERNELS

// Pinned ops that can run at once are one island, also where others stand between them. What only the
// second one needs (%t) waits for it, and an island has its constants.
// CHECK-LABEL: func.func private @host_region_0(
// CHECK-SAME: %[[X:.*]]: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>)
// CHECK-SAME: nova.device = "cpu"
// CHECK: nova.constant
// CHECK: nova.exp %[[X]] :
// CHECK: nova.mul
// CHECK-NOT: nova.permute
// CHECK: return
// CHECK-LABEL: func.func private @host_region_1(
// CHECK: nova.permute
// CHECK: nova.add
// CHECK-LABEL: func.func @main(
// CHECK: nova.tanh
// CHECK: call @host_region_0
// CHECK: nova.matmul
// CHECK: call @host_region_1
// CHECK-NOT: nova.device

// On a CPU pins do nothing.
// HOST-NOT: nova.device
// HOST-NOT: call
// HOST: nova.exp
// HOST: return

// Nothing is fused across the border, and the calls of the kernels of the host regions stand in main.
// KERNELS: func.func private @kernel_0(
// KERNELS-SAME: nova.device = "cpu"
// KERNELS: math.exp
// KERNELS: func.func private @kernel_2(
// KERNELS-NOT: nova.device
// KERNELS-LABEL: func.func @main(
// KERNELS-NOT: island
// KERNELS: call @kernel_2
// KERNELS: call @kernel_0
// KERNELS: call @kernel_3
// KERNELS: call @kernel_1
func.func @main(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %two = "nova.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %t = "nova.permute"(%x) {axes = array<i64: 1, 0>, nova.device = "cpu"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %0 = "nova.exp"(%x) {nova.device = "cpu"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = "nova.tanh"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = "nova.mul"(%0, %two) {nova.device = "cpu"} : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %3 = "nova.matmul"(%2, %1) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %4 = "nova.add"(%3, %t) {nova.device = "cpu"} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %4, %0 : tensor<64x64xf32>, tensor<64x64xf32>
}
