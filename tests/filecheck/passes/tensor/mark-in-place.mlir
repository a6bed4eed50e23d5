// RUN: %nova-opt %s --mark-in-place | %filecheck %s

// Updates of a carry that is dead afterwards are marked, also in a row.
// CHECK-LABEL: func.func @main(
// CHECK: %[[A:.*]] = nova.dynamic_update_slice %{{.*}}nova.overwrites
// CHECK: %[[B:.*]] = nova.dynamic_update_slice %[[A]]{{.*}}nova.overwrites
// A carry whose old value is read later, and a value that is not carried, are not.
// CHECK: nova.dynamic_update_slice
// CHECK-NOT: nova.overwrites
// CHECK: return
func.func @main(%c: tensor<8x4xf32>, %d: tensor<8x4xf32>, %e: tensor<8x4xf32>, %u: tensor<1x4xf32>, %i: tensor<2xi64>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) attributes {nova.carried = array<i64: 0, 1>} {
  %0 = nova.dynamic_update_slice %c, %u, %i : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<2xi64>) -> tensor<8x4xf32>
  %1 = nova.dynamic_update_slice %0, %u, %i : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<2xi64>) -> tensor<8x4xf32>
  %2 = nova.dynamic_update_slice %d, %u, %i : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<2xi64>) -> tensor<8x4xf32>
  %3 = nova.dynamic_update_slice %e, %u, %i : (tensor<8x4xf32>, tensor<1x4xf32>, tensor<2xi64>) -> tensor<8x4xf32>
  %4 = nova.add %3, %d : tensor<8x4xf32>
  return %1, %2, %4 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}
