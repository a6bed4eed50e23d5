// RUN: %nova-opt %s --nova-to-linalg --form-kernels | %filecheck %s
// RUN: %nova-opt %s --nova-to-linalg --form-kernels='serial-work=0' | %filecheck %s --check-prefix=TILED
// RUN: %nova-opt %s --nova-to-linalg --form-kernels='max-ops=1' | %filecheck %s --check-prefix=SINGLE

// Little work is one kernel with one tile, whatever it reads of itself.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64>
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: iterator_types = ["reduction", "parallel"]
// CHECK-NOT: @kernel_1

// TILED-LABEL: func.func private @kernel_0(
// TILED-SAME: nova.grid = array<i64: 8, 10>
// TILED-LABEL: func.func private @kernel_1(
// TILED-SAME: nova.grid = array<i64: 10>

// SINGLE: @kernel_0
// SINGLE: @kernel_1
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x10xf32>) -> tensor<10xf32> {
  %0 = "nova.matmul"(%x, %w) : (tensor<8x16xf32>, tensor<16x10xf32>) -> tensor<8x10xf32>
  %1 = "nova.sum"(%0) {axis = 0 : i64} : (tensor<8x10xf32>) -> tensor<10xf32>
  return %1 : tensor<10xf32>
}
