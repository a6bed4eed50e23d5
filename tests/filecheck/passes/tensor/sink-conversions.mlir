// RUN: %nova-opt %s --sink-conversions | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// Both users widen the bf16 themselves: the f32 is never stored.
// CHECK-LABEL: func.func @widened(
// CHECK-SAME: %[[X:.*]]: tensor<8x768xbf16>
// CHECK-COUNT-2: linalg.generic {{.*}} ins(%[[X]] : tensor<8x768xbf16>)
func.func @widened(%x: tensor<8x768xbf16>) -> (tensor<8x768xf32>, tensor<8x768xf32>) {
  %0 = tensor.empty() : tensor<8x768xf32>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x768xbf16>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %3 = arith.extf %in : bf16 to f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%wide : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.exp %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%wide : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.absf %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  return %1, %2 : tensor<8x768xf32>, tensor<8x768xf32>
}

// A chain of cheap ops is copied as one: it reads a bf16 and a number per row.
// CHECK-LABEL: func.func @centred(
// CHECK-COUNT-2: arith.subf
func.func @centred(%x: tensor<8x768xbf16>, %mean: tensor<8xf32>) -> (tensor<8x768xf32>, tensor<8x768xf32>) {
  %0 = tensor.empty() : tensor<8x768xf32>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x768xbf16>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %3 = arith.extf %in : bf16 to f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %centred = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%wide, %mean : tensor<8x768xf32>, tensor<8xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %3 = arith.subf %in, %m : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%centred : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.exp %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%centred : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.absf %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  return %1, %2 : tensor<8x768xf32>, tensor<8x768xf32>
}

// Two f32 operands take as many bytes as the result: it is stored.
// CHECK-LABEL: func.func @stored(
// CHECK-COUNT-1: arith.addf
// CHECK-NOT: arith.addf
func.func @stored(%x: tensor<8x768xf32>, %y: tensor<8x768xf32>) -> (tensor<8x768xf32>, tensor<8x768xf32>) {
  %0 = tensor.empty() : tensor<8x768xf32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<8x768xf32>, tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %3 = arith.addf %in, %m : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%sum : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.exp %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%sum : tensor<8x768xf32>) outs(%0 : tensor<8x768xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.absf %in : f32
    linalg.yield %3 : f32
  } -> tensor<8x768xf32>
  return %1, %2 : tensor<8x768xf32>, tensor<8x768xf32>
}
