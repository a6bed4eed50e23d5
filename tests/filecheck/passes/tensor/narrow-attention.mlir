// RUN: %nova-opt %s --narrow-attention | %filecheck %s

#q = affine_map<(b, i, j, e, f) -> (b, i, e)>
#k = affine_map<(b, i, j, e, f) -> (b, j, e)>
#v = affine_map<(b, i, j, e, f) -> (b, j, f)>
#o = affine_map<(b, i, j, e, f) -> (b, i, f)>
#l = affine_map<(b, i, j, e, f) -> (b, i)>
#id = affine_map<(a, b, c) -> (a, b, c)>
#flat = affine_map<(a, b) -> (a, b)>
#turned = affine_map<(a, b, c) -> (b, a, c)>

// A result that is only rounded is rounded where it is made; the other stays wide.
// CHECK-LABEL: func.func @both(
// CHECK: %[[R:.*]]:2 = linalg.generic {{.*}} outs(%{{.*}}, %{{.*}} : tensor<2x3x6xbf16>, tensor<2x3xf32>) attrs = {nova.work = 7 : i64}
// CHECK: %[[P:.*]] = nova.attend_point
// CHECK-SAME: -> f32
// CHECK: %[[N:.*]] = arith.truncf %[[P]] : f32 to bf16
// CHECK: linalg.yield %[[N]], %[[P]] : bf16, f32
// CHECK-NOT: linalg.generic
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @both(%q: tensor<2x3x4xbf16>, %k: tensor<2x5x4xbf16>, %v: tensor<2x5x6xbf16>) -> (tensor<2x3x6xbf16>, tensor<2x3xf32>) {
  %out = tensor.empty() : tensor<2x3x6xf32>
  %sums = tensor.empty() : tensor<2x3xf32>
  %0:2 = linalg.generic {indexing_maps = [#q, #k, #v, #o, #l], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%q, %k, %v : tensor<2x3x4xbf16>, tensor<2x5x4xbf16>, tensor<2x5x6xbf16>) outs(%out, %sums : tensor<2x3x6xf32>, tensor<2x3xf32>) attrs = {nova.work = 7 : i64} {
  ^bb0(%a: bf16, %b: bf16, %c: bf16, %d: f32, %e: f32):
    %p = "nova.attend_point"(%a, %b, %c) {causal = true, results = ["out", "logsumexp"], scale = 0.5 : f64} : (bf16, bf16, bf16) -> f32
    linalg.yield %p, %p : f32, f32
  } -> (tensor<2x3x6xf32>, tensor<2x3xf32>)
  %to = tensor.empty() : tensor<2x3x6xbf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0#0 : tensor<2x3x6xf32>) outs(%to : tensor<2x3x6xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<2x3x6xbf16>
  return %1, %0#1 : tensor<2x3x6xbf16>, tensor<2x3xf32>
}

// A reshape that drops a unit dimension comes after the rounding.
// CHECK-LABEL: func.func @reshaped(
// CHECK: %[[R:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<1x3x6xbf16>)
// CHECK: arith.truncf
// CHECK-NOT: linalg.generic
// CHECK: %[[S:.*]] = tensor.collapse_shape %[[R]]
// CHECK-SAME: tensor<1x3x6xbf16> into tensor<3x6xbf16>
// CHECK-NOT: arith.truncf
// CHECK: return %[[S]]
func.func @reshaped(%q: tensor<1x3x4xbf16>, %k: tensor<1x5x4xbf16>, %v: tensor<1x5x6xbf16>) -> tensor<3x6xbf16> {
  %out = tensor.empty() : tensor<1x3x6xf32>
  %0 = linalg.generic {indexing_maps = [#q, #k, #v, #o], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%q, %k, %v : tensor<1x3x4xbf16>, tensor<1x5x4xbf16>, tensor<1x5x6xbf16>) outs(%out : tensor<1x3x6xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: bf16, %d: f32):
    %p = "nova.attend_point"(%a, %b, %c) {causal = true, results = ["out"], scale = 0.5 : f64} : (bf16, bf16, bf16) -> f32
    linalg.yield %p : f32
  } -> tensor<1x3x6xf32>
  %flat = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<1x3x6xf32> into tensor<3x6xf32>
  %to = tensor.empty() : tensor<3x6xbf16>
  %1 = linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel", "parallel"]} ins(%flat : tensor<3x6xf32>) outs(%to : tensor<3x6xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<3x6xbf16>
  return %1 : tensor<3x6xbf16>
}

// Results that are used otherwise, or turned on the way, stay as they are.
// CHECK-LABEL: func.func @used_twice(
// CHECK: outs(%{{.*}} : tensor<2x3x6xf32>)
// CHECK: linalg.generic
func.func @used_twice(%q: tensor<2x3x4xbf16>, %k: tensor<2x5x4xbf16>, %v: tensor<2x5x6xbf16>) -> (tensor<2x3x6xbf16>, tensor<2x3x6xf32>) {
  %out = tensor.empty() : tensor<2x3x6xf32>
  %0 = linalg.generic {indexing_maps = [#q, #k, #v, #o], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%q, %k, %v : tensor<2x3x4xbf16>, tensor<2x5x4xbf16>, tensor<2x5x6xbf16>) outs(%out : tensor<2x3x6xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: bf16, %d: f32):
    %p = "nova.attend_point"(%a, %b, %c) {causal = true, results = ["out"], scale = 0.5 : f64} : (bf16, bf16, bf16) -> f32
    linalg.yield %p : f32
  } -> tensor<2x3x6xf32>
  %to = tensor.empty() : tensor<2x3x6xbf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0 : tensor<2x3x6xf32>) outs(%to : tensor<2x3x6xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<2x3x6xbf16>
  return %1, %0 : tensor<2x3x6xbf16>, tensor<2x3x6xf32>
}

// CHECK-LABEL: func.func @turned(
// CHECK: outs(%{{.*}} : tensor<2x3x6xf32>)
// CHECK: linalg.generic
func.func @turned(%q: tensor<2x3x4xbf16>, %k: tensor<2x5x4xbf16>, %v: tensor<2x5x6xbf16>) -> tensor<3x2x6xbf16> {
  %out = tensor.empty() : tensor<2x3x6xf32>
  %0 = linalg.generic {indexing_maps = [#q, #k, #v, #o], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%q, %k, %v : tensor<2x3x4xbf16>, tensor<2x5x4xbf16>, tensor<2x5x6xbf16>) outs(%out : tensor<2x3x6xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: bf16, %d: f32):
    %p = "nova.attend_point"(%a, %b, %c) {causal = true, results = ["out"], scale = 0.5 : f64} : (bf16, bf16, bf16) -> f32
    linalg.yield %p : f32
  } -> tensor<2x3x6xf32>
  %to = tensor.empty() : tensor<3x2x6xbf16>
  %1 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0 : tensor<2x3x6xf32>) outs(%to : tensor<3x2x6xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %n = arith.truncf %a : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<3x2x6xbf16>
  return %1 : tensor<3x2x6xbf16>
}
