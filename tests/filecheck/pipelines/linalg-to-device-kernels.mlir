// RUN: %nova-opt %s --nova-to-linalg --linalg-to-device-kernels | %filecheck %s
// RUN: %nova-opt %s --nova-to-linalg --linalg-to-kernels | %filecheck %s --check-prefix=HOST

// A device takes what is done to a product's results into the kernel of the product, whose grid
// are its rows and columns.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 256, 512>
// CHECK: arith.mulf
// CHECK: math.exp
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-1: call @kernel_
// CHECK-NOT: call
// HOST-LABEL: func.func @main(
// HOST: call @kernel_0
func.func @main(%x: tensor<256x128xf32>, %w: tensor<128x512xf32>) -> tensor<256x512xf32> {
  %0 = "nova.matmul"(%x, %w) : (tensor<256x128xf32>, tensor<128x512xf32>) -> tensor<256x512xf32>
  %1 = "nova.exp"(%0) : (tensor<256x512xf32>) -> tensor<256x512xf32>
  return %1 : tensor<256x512xf32>
}
