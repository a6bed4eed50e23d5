// RUN: %nova-opt %s --fold-transposes | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#tr = affine_map<(d0, d1) -> (d1, d0)>

// A transposed operand is read where it lies.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @transposed
// CHECK-NOT: linalg.generic
// CHECK: linalg.contract indexing_maps = [#[[A]], #[[B]], #{{.*}}] ins(%arg0, %arg1
func.func @transposed(%a: tensor<8x4xf32>, %b: tensor<8x6xf32>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x4xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x8xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%1, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// Work on the way is not folded: it would be done again for every column.
// CHECK-LABEL: func.func @elementwise
// CHECK: math.exp
// CHECK: linalg.contract
func.func @elementwise(%a: tensor<8x4xf32>, %b: tensor<8x6xf32>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x4xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.exp %in : f32
    linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%1, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// A slice is no permutation.
// CHECK-LABEL: func.func @slice
// CHECK: linalg.generic
// CHECK: linalg.contract
func.func @slice(%a: tensor<9x8xf32>, %b: tensor<8x6xf32>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + 2, d1)>, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<9x8xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x8xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%1, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// A matrix that is only needed transposed is made so.
// CHECK-LABEL: func.func @result
// CHECK-NOT: linalg.generic
// CHECK: %[[Z:.*]] = linalg.fill {{.*}} -> tensor<6x4xf32>
// CHECK: %[[C:.*]] = linalg.contract indexing_maps = [{{.*}}, {{.*}}, #[[T:.*]]] ins(%arg0, %arg1 {{.*}} outs(%[[Z]]
// CHECK: return %[[C]]
func.func @result(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4x6xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%1 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = tensor.empty() : tensor<6x4xf32>
  %4 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<4x6xf32>) outs(%3 : tensor<6x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x4xf32>
  return %4 : tensor<6x4xf32>
}

// It is not when it is needed as it is, too.
// CHECK-LABEL: func.func @both
// CHECK: linalg.contract
// CHECK: linalg.generic
func.func @both(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4x6xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%1 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = tensor.empty() : tensor<6x4xf32>
  %4 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<4x6xf32>) outs(%3 : tensor<6x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x4xf32>
  return %2, %4 : tensor<4x6xf32>, tensor<6x4xf32>
}

// A matrix that is rounded and then transposed is computed transposed, and rounded there.
// CHECK-LABEL: func.func @rounded_result
// CHECK: %[[C:.*]] = linalg.contract {{.*}} -> tensor<6x4xf32>
// CHECK: linalg.generic {{.*}} ins(%[[C]] : tensor<6x4xf32>) outs(%{{.*}} : tensor<6x4xbf16>)
// CHECK: arith.truncf
// CHECK-NOT: linalg.generic
func.func @rounded_result(%a: tensor<4x8xbf16>, %b: tensor<8x6xbf16>) -> tensor<6x4xbf16> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<4x6xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<4x8xbf16>, tensor<8x6xbf16>) outs(%1 : tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = tensor.empty() : tensor<4x6xbf16>
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<4x6xf32>) outs(%3 : tensor<4x6xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %8 = arith.truncf %in : f32 to bf16
    linalg.yield %8 : bf16
  } -> tensor<4x6xbf16>
  %5 = tensor.empty() : tensor<6x4xbf16>
  %6 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<4x6xbf16>) outs(%5 : tensor<6x4xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    linalg.yield %in : bf16
  } -> tensor<6x4xbf16>
  return %6 : tensor<6x4xbf16>
}
