// RUN: %nova-opt %s --convolve-overlaps | %filecheck %s

// The data gradient of a convolution with padding 1: a slice of the sum makes the padding smaller.
// CHECK-LABEL: func.func @data_gradient(
// CHECK-SAME: %[[W:.*]]: tensor<48x288xf32>, %[[G:.*]]: tensor<2x48x196xf32>
// CHECK: %[[TAPS:.*]] = nova.reshape %[[W]] {{.*}}tensor<48x32x3x3xf32>
// CHECK: %[[SWAPPED:.*]] = nova.permute %[[TAPS]] {{.*}}1, 0, 2, 3
// CHECK: %[[FLIPPED:.*]] = nova.flip %[[SWAPPED]] {{.*}}2, 3
// CHECK: %[[A:.*]] = nova.reshape %[[FLIPPED]] {{.*}}tensor<32x432xf32>
// CHECK: %[[PADDED:.*]] = nova.pad {{.*}}tensor<2x48x16x16xf32>
// CHECK: %[[WINDOWS:.*]] = nova.windows %[[PADDED]] {{.*}}tensor<2x48x3x3x14x14xf32>
// CHECK: %[[B:.*]] = nova.reshape %[[WINDOWS]] {{.*}}tensor<2x432x196xf32>
// CHECK: nova.matmul %[[A]], %[[B]]
// CHECK-NOT: overlap_add
func.func @data_gradient(%w: tensor<48x288xf32>, %g: tensor<2x48x196xf32>) -> tensor<2x32x14x14xf32> {
  %0 = "nova.permute"(%w) {axes = array<i64: 1, 0>} : (tensor<48x288xf32>) -> tensor<288x48xf32>
  %1 = "nova.matmul"(%0, %g) : (tensor<288x48xf32>, tensor<2x48x196xf32>) -> tensor<2x288x196xf32>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 32, 3, 3, 14, 14>} : (tensor<2x288x196xf32>) -> tensor<2x32x3x3x14x14xf32>
  %3 = "nova.overlap_add"(%2) {dilation = array<i64: 1, 1>, size = array<i64: 16, 16>, stride = array<i64: 1, 1>} : (tensor<2x32x3x3x14x14xf32>) -> tensor<2x32x16x16xf32>
  %4 = "nova.slice"(%3) {starts = array<i64: 0, 0, 1, 1>, steps = array<i64: 1, 1, 1, 1>, stops = array<i64: 2, 32, 15, 15>} : (tensor<2x32x16x16xf32>) -> tensor<2x32x14x14xf32>
  return %4 : tensor<2x32x14x14xf32>
}

// With a stride of 2 three of four windows of a spread g would be zeros.
// CHECK-LABEL: func.func @strided(
// CHECK: nova.overlap_add
func.func @strided(%w: tensor<48x288xf32>, %g: tensor<2x48x49xf32>) -> tensor<2x32x15x15xf32> {
  %0 = "nova.permute"(%w) {axes = array<i64: 1, 0>} : (tensor<48x288xf32>) -> tensor<288x48xf32>
  %1 = "nova.matmul"(%0, %g) : (tensor<288x48xf32>, tensor<2x48x49xf32>) -> tensor<2x288x49xf32>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 32, 3, 3, 7, 7>} : (tensor<2x288x49xf32>) -> tensor<2x32x3x3x7x7xf32>
  %3 = "nova.overlap_add"(%2) {dilation = array<i64: 1, 1>, size = array<i64: 15, 15>, stride = array<i64: 2, 2>} : (tensor<2x32x3x3x7x7xf32>) -> tensor<2x32x15x15xf32>
  return %3 : tensor<2x32x15x15xf32>
}

// Few channels, which would be the rows of the matmul, stay; and so do sums that are cut further in
// than a window reaches.
// CHECK-LABEL: func.func @few_channels(
// CHECK: nova.overlap_add
// CHECK: nova.overlap_add
func.func @few_channels(%w: tensor<8x12xf32>, %v: tensor<8x80xf32>, %g: tensor<2x8x20xf32>) -> (tensor<2x3x23xf32>, tensor<2x20x15xf32>) {
  %0 = "nova.permute"(%w) {axes = array<i64: 1, 0>} : (tensor<8x12xf32>) -> tensor<12x8xf32>
  %1 = "nova.matmul"(%0, %g) : (tensor<12x8xf32>, tensor<2x8x20xf32>) -> tensor<2x12x20xf32>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 3, 4, 20>} : (tensor<2x12x20xf32>) -> tensor<2x3x4x20xf32>
  %3 = "nova.overlap_add"(%2) {dilation = array<i64: 1>, size = array<i64: 23>, stride = array<i64: 1>} : (tensor<2x3x4x20xf32>) -> tensor<2x3x23xf32>
  %4 = "nova.permute"(%v) {axes = array<i64: 1, 0>} : (tensor<8x80xf32>) -> tensor<80x8xf32>
  %5 = "nova.matmul"(%4, %g) : (tensor<80x8xf32>, tensor<2x8x20xf32>) -> tensor<2x80x20xf32>
  %6 = "nova.reshape"(%5) {shape = array<i64: 2, 20, 4, 20>} : (tensor<2x80x20xf32>) -> tensor<2x20x4x20xf32>
  %7 = "nova.overlap_add"(%6) {dilation = array<i64: 1>, size = array<i64: 23>, stride = array<i64: 1>} : (tensor<2x20x4x20xf32>) -> tensor<2x20x23xf32>
  %8 = "nova.slice"(%7) {starts = array<i64: 0, 0, 4>, steps = array<i64: 1, 1, 1>, stops = array<i64: 2, 20, 19>} : (tensor<2x20x23xf32>) -> tensor<2x20x15xf32>
  return %3, %8 : tensor<2x3x23xf32>, tensor<2x20x15xf32>
}
