// RUN: %nova-opt %s --sink-permutes --canonicalize-nova | %filecheck %s

// A chain between two permutations computes in the order of its operands in memory.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME: %[[X:.*]]: tensor<2x5x7x16xf32>, %[[B:.*]]: tensor<16xf32>
// CHECK-NOT: nova.permute
// CHECK: %[[SUM:.*]] = nova.sum %[[X]] {{.*}}0, 1, 2
// CHECK-NOT: nova.permute
// CHECK: nova.pad {{.*}}high = array<i64: 0, 1, 0, 0>
// CHECK-NOT: nova.permute
// CHECK: return
func.func @chain(%x: tensor<2x5x7x16xf32>, %b: tensor<16xf32>) -> tensor<2x6x7x16xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x5x7x16xf32>) -> tensor<2x16x5x7xf32>
  %1 = "nova.sum"(%0) {axis = array<i64: 0, 2, 3>, keepdims = true} : (tensor<2x16x5x7xf32>) -> tensor<1x16x1x1xf32>
  %2 = "nova.sub"(%0, %1) : (tensor<2x16x5x7xf32>, tensor<1x16x1x1xf32>) -> tensor<2x16x5x7xf32>
  %3 = "nova.reshape"(%b) {shape = array<i64: 16, 1, 1>} : (tensor<16xf32>) -> tensor<16x1x1xf32>
  %4 = "nova.mul"(%2, %3) : (tensor<2x16x5x7xf32>, tensor<16x1x1xf32>) -> tensor<2x16x5x7xf32>
  %5 = "nova.pad"(%4) {high = array<i64: 0, 0, 1, 0>, low = array<i64: 0, 0, 0, 0>, value = 0.0 : f64} : (tensor<2x16x5x7xf32>) -> tensor<2x16x6x7xf32>
  %6 = "nova.permute"(%5) {axes = array<i64: 0, 2, 3, 1>} : (tensor<2x16x6x7xf32>) -> tensor<2x6x7x16xf32>
  return %6 : tensor<2x6x7x16xf32>
}

// Operands in two orders: the op stays.
// CHECK-LABEL: func.func @two_orders(
// CHECK: %[[P:.*]] = nova.permute
// CHECK: nova.add %[[P]]
func.func @two_orders(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %1 = "nova.add"(%0, %y) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// A reshape that merges axes which are not next to each other in memory stays; one that divides an
// axis does not.
// CHECK-LABEL: func.func @reshapes(
// CHECK: nova.permute
// CHECK: nova.reshape {{.*}}tensor<2x24x5xf32>
// CHECK: nova.reshape {{.*}}tensor<2x5x2x2x6xf32>
// CHECK: nova.permute
func.func @reshapes(%x: tensor<2x5x4x6xf32>) -> (tensor<2x24x5xf32>, tensor<2x6x5x2x2xf32>) {
  %0 = "nova.permute"(%x) {axes = array<i64: 0, 3, 2, 1>} : (tensor<2x5x4x6xf32>) -> tensor<2x6x4x5xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 2, 24, 5>} : (tensor<2x6x4x5xf32>) -> tensor<2x24x5xf32>
  %2 = "nova.permute"(%x) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x5x4x6xf32>) -> tensor<2x6x5x4xf32>
  %3 = "nova.reshape"(%2) {shape = array<i64: 2, 6, 5, 2, 2>} : (tensor<2x6x5x4xf32>) -> tensor<2x6x5x2x2xf32>
  return %1, %3 : tensor<2x24x5xf32>, tensor<2x6x5x2x2xf32>
}

// A vector of channels for each image that is repeated, and scaled, is in order either way.
// CHECK-LABEL: func.func @repeated(
// CHECK: %[[V:.*]] = nova.reshape %arg1 {{.*}}tensor<2x1x1x16xf32>
// CHECK: nova.expand %[[V]] {{.*}}tensor<2x5x7x16xf32>
// CHECK: %[[SUM:.*]] = nova.add {{.*}}tensor<2x5x7x16xf32>
// CHECK: nova.permute %[[SUM]]
func.func @repeated(%x: tensor<2x5x7x16xf32>, %v: tensor<2x16x1x1xf32>, %s: tensor<f32>) -> tensor<2x16x5x7xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x5x7x16xf32>) -> tensor<2x16x5x7xf32>
  %1 = "nova.expand"(%v) {shape = array<i64: 2, 16, 5, 7>} : (tensor<2x16x1x1xf32>) -> tensor<2x16x5x7xf32>
  %2 = "nova.mul"(%1, %s) : (tensor<2x16x5x7xf32>, tensor<f32>) -> tensor<2x16x5x7xf32>
  %3 = "nova.add"(%0, %2) : (tensor<2x16x5x7xf32>, tensor<2x16x5x7xf32>) -> tensor<2x16x5x7xf32>
  return %3 : tensor<2x16x5x7xf32>
}

// Repeated rows of an image are not.
// CHECK-LABEL: func.func @repeated_rows(
// CHECK: %[[P:.*]] = nova.permute
// CHECK: nova.add %[[P]]
func.func @repeated_rows(%x: tensor<2x5x7x16xf32>, %v: tensor<2x16x1x7xf32>) -> tensor<2x16x5x7xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x5x7x16xf32>) -> tensor<2x16x5x7xf32>
  %1 = "nova.expand"(%v) {shape = array<i64: 2, 16, 5, 7>} : (tensor<2x16x1x7xf32>) -> tensor<2x16x5x7xf32>
  %2 = "nova.add"(%0, %1) : (tensor<2x16x5x7xf32>, tensor<2x16x5x7xf32>) -> tensor<2x16x5x7xf32>
  return %2 : tensor<2x16x5x7xf32>
}
