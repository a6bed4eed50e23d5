// RUN: %nova-opt %s --split-input-file --nova-to-linalg --linalg-to-kernels | %filecheck %s

// main is a list of calls, each kernel a function with what the scheduler wants to know.
// CHECK: func.func private @kernel_0({{.*}} attributes {nova.grid = array<i64{{.*}}>, nova.kernel, nova.work = {{[0-9]+}} : i64}
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: call @kernel_0
// CHECK-NEXT: return
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = "nova.softmax"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

// What a repeated layer does is there once.
// CHECK: func.func private @kernel_0(
// CHECK: func.func private @kernel_1(
// CHECK-NOT: func.func private
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: tensor<64x1024xf32>
// CHECK-NEXT: %[[SUM:.*]] = call @kernel_0(%[[X]])
// CHECK-NEXT: %[[Y:.*]] = call @kernel_1(%[[X]], %[[SUM]])
// CHECK-NEXT: %[[SUM:.*]] = call @kernel_0(%[[Y]])
// CHECK-NEXT: %[[Z:.*]] = call @kernel_1(%[[Y]], %[[SUM]])
// CHECK-NEXT: return %[[Z]]
func.func @main(%x: tensor<64x1024xf32>) -> tensor<64x1024xf32> {
  %0 = "nova.sum"(%x) {axis = array<i64: 0>, keepdims = false} : (tensor<64x1024xf32>) -> tensor<1024xf32>
  %1 = "nova.mul"(%x, %0) : (tensor<64x1024xf32>, tensor<1024xf32>) -> tensor<64x1024xf32>
  %2 = "nova.sum"(%1) {axis = array<i64: 0>, keepdims = false} : (tensor<64x1024xf32>) -> tensor<1024xf32>
  %3 = "nova.mul"(%1, %2) : (tensor<64x1024xf32>, tensor<1024xf32>) -> tensor<64x1024xf32>
  return %3 : tensor<64x1024xf32>
}
