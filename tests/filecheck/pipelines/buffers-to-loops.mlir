// RUN: %nova-opt %s --nova-to-linalg --linalg-to-kernels --kernels-to-buffers --buffers-to-loops='target=x86_64-v3' | %filecheck %s

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[BEGIN:[^ ]*]]: index, %[[END:[^ ]*]]: index) attributes
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
// CHECK: math.exp
// CHECK-NOT: linalg.
// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
