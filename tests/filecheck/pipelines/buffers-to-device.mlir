// RUN: %nova-opt %s --nova-to-linalg --linalg-to-device-kernels --kernels-to-buffers --buffers-to-device='target=cuda:sm_90a' | %filecheck %s

// Each kernel function holds one launch, and main calls them as it does on a CPU.
// CHECK: module attributes {gpu.container_module}
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.launch = array<i64:
// CHECK: gpu.launch blocks(
// CHECK: math.exp
// CHECK: gpu.terminator
// CHECK-NOT: linalg.
// CHECK-LABEL: func.func @main(
// CHECK: call @kernel_0
func.func @main(%x: tensor<80x160xf32>) -> tensor<80x160xf32> {
  %0 = "nova.softmax"(%x) : (tensor<80x160xf32>) -> tensor<80x160xf32>
  return %0 : tensor<80x160xf32>
}
