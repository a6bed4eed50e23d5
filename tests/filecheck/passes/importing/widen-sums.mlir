// RUN: %nova-opt %s --widen-sums | %filecheck %s

#in = affine_map<(i, j) -> (i, j)>
#out = affine_map<(i, j) -> (i)>

// A sum of halves is a sum of floats, rounded at the end; so are the products in it.
// CHECK-LABEL: func.func @sum(
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<4xbf16>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.extf
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<4x8xbf16>) outs(%[[WIDE]] : tensor<4xf32>)
// CHECK: arith.extf
// CHECK: %[[TERM:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: arith.addf %{{.*}}, %[[TERM]] : f32
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<4xf32>) outs(%{{.*}} : tensor<4xbf16>)
// CHECK: arith.truncf
func.func @sum(%x: tensor<4x8xbf16>, %z: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xbf16>) outs(%z : tensor<4xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %1 = arith.mulf %in, %in : bf16
    %2 = arith.addf %1, %out : bf16
    linalg.yield %2 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// The largest is exact in any type, and a body that looks at its sum has to see what it asks for.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: arith.extf
func.func @others(%x: tensor<4x8xf16>, %z: tensor<4xf16>) -> (tensor<4xf16>, tensor<4xf16>) {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf16>) outs(%z : tensor<4xf16>) {
  ^bb0(%in: f16, %out: f16):
    %1 = arith.maximumf %in, %out : f16
    linalg.yield %1 : f16
  } -> tensor<4xf16>
  %1 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf16>) outs(%z : tensor<4xf16>) {
  ^bb0(%in: f16, %out: f16):
    %2 = arith.mulf %in, %out : f16
    %3 = arith.addf %2, %out : f16
    linalg.yield %3 : f16
  } -> tensor<4xf16>
  return %0, %1 : tensor<4xf16>, tensor<4xf16>
}
