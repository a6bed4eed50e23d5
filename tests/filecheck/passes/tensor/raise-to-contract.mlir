// RUN: %nova-opt %s --raise-to-contract | %filecheck %s

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>

// CHECK-LABEL: func.func @product(
// CHECK: linalg.contract indexing_maps = [#{{.*}}, #{{.*}}, #{{.*}}] ins(%arg0, %arg1 : tensor<4x8xf32>, tensor<8x4xf32>) outs(%arg2
// CHECK-NOT: linalg.generic
func.func @product(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>, %z: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %1 = arith.mulf %in2, %in : f32
    %2 = arith.addf %1, %out : f32
    linalg.yield %2 : f32
  } -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// A sum of halves is a sum of floats, rounded at the end.
// CHECK-LABEL: func.func @halves(
// CHECK: %[[ZERO:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<4x4xf32>)
// CHECK: linalg.contract {{.*}} ins(%arg0, %arg1 : tensor<4x8xbf16>, tensor<8x4xbf16>) outs(%[[ZERO]] : tensor<4x4xf32>)
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @halves(%x: tensor<4x8xbf16>, %y: tensor<8x4xbf16>) -> tensor<4x4xbf16> {
  %z = arith.constant dense<0.0> : tensor<4x4xbf16>
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<4x8xbf16>, tensor<8x4xbf16>) outs(%z : tensor<4x4xbf16>) {
  ^bb0(%in: bf16, %in2: bf16, %out: bf16):
    %1 = arith.mulf %in, %in2 : bf16
    %2 = arith.addf %out, %1 : bf16
    linalg.yield %2 : bf16
  } -> tensor<4x4xbf16>
  return %0 : tensor<4x4xbf16>
}

// A convolution reads at moving positions, and a sum of sums is no product.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: linalg.contract
#window = affine_map<(i, k) -> (i + k)>
#taps = affine_map<(i, k) -> (k)>
#out = affine_map<(i, k) -> (i)>
func.func @others(%x: tensor<6xf32>, %y: tensor<3xf32>, %z: tensor<4xf32>, %w: tensor<4x3xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = linalg.generic {indexing_maps = [#window, #taps, #out], iterator_types = ["parallel", "reduction"]} ins(%x, %y : tensor<6xf32>, tensor<3xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %2 = arith.mulf %in, %in2 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, #taps, #out], iterator_types = ["parallel", "reduction"]} ins(%w, %y : tensor<4x3xf32>, tensor<3xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %2 = arith.addf %in, %in2 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
