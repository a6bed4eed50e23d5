// RUN: %nova-opt %s --nova-to-linalg --linalg-to-kernels | %filecheck %s

// main is a list of calls, each kernel a function with what the scheduler wants to know.
// CHECK: func.func private @kernel_0({{.*}} attributes {nova.grid = array<i64{{.*}}>, nova.kernel, nova.work = {{[0-9]+}} : i64}
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: call @kernel_0
// CHECK-NEXT: return
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
