// RUN: %nova-opt %s --nova-to-linalg --linalg-to-kernels --kernels-to-buffers | %filecheck %s

// No tensors, no allocation: arguments, outputs and one workspace.
// CHECK-NOT: tensor<
// CHECK-NOT: memref.alloc
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: memref<8x16xf32>, %[[OUT:.*]]: memref<8x16xf32>, %[[WS:.*]]: memref<[[SIZE:[0-9]+]]xi8>)
// CHECK-SAME: nova.outputs = 1 : i64, nova.workspace = [[SIZE]] : i64
// CHECK: memref.view %[[WS]]
// CHECK: call @kernel_0(%[[X]], %[[OUT]], %{{.*}})
// CHECK-NOT: memref.alloc
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
