// RUN: %nova-opt %s --wrap-attention | %filecheck %s

#q = affine_map<(b, i, j, e, f) -> (b, i, e)>
#k = affine_map<(b, i, j, e, f) -> (b, j, e)>
#v = affine_map<(b, i, j, e, f) -> (b, j, f)>
#o = affine_map<(b, i, j, e, f) -> (b, i, f)>
#l = affine_map<(b, i, j, e, f) -> (b, i)>

// The loops and accesses are true; a point stands for what is computed. What nobody uses is not.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4)>
// CHECK-DAG: #[[O:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4)>
// CHECK-LABEL: func.func @forward(
// CHECK: linalg.generic {indexing_maps = [#[[Q]], #[[K]], #[[V]], #[[O]]], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]} ins(%arg0, %arg1, %arg2 : {{.*}}) outs(%{{.*}} : tensor<2x3x6xf32>) attrs = {nova.work = 1080 : i64}
// CHECK: nova.attend_point %in, %in_0, %in_1 {causal = true, results = ["out"], scale = 5.000000e-01 : f64}
func.func @forward(%q: tensor<2x3x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x6xf32>) -> tensor<2x3x6xf32> {
  %0:2 = "nova.attend"(%q, %k, %v) {maps = [#q, #k, #v, #o, #l], causal = true, scale = 0.5 : f64} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x6xf32>) -> (tensor<2x3x6xf32>, tensor<2x3xf32>)
  return %0#0 : tensor<2x3x6xf32>
}

// Gradients are computed together, a batch at a time.
// CHECK-LABEL: func.func @gradient(
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "reduction", "reduction", "reduction"]
// CHECK: nova.attend_gradient_point {{.*}} {causal = false, results = ["q", "k", "v"],
// CHECK-NOT: linalg.generic
func.func @gradient(%g: tensor<2x3x6xf32>, %q: tensor<2x3x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x6xf32>, %l: tensor<2x3xf32>, %d: tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x6xf32>) {
  %0:3 = "nova.attend_gradient"(%g, %q, %k, %v, %l, %d) {maps = [#o, #q, #k, #v, #l, #l, #q, #k, #v], causal = false, scale = 1.0 : f64} : (tensor<2x3x6xf32>, tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x6xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x6xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x6xf32>
}

// Few batches of many rows: by rows of q, and by rows of k and v.
// CHECK-LABEL: func.func @long(
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]
// CHECK: nova.attend_gradient_point {{.*}} {causal = false, results = ["q"],
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel", "reduction", "reduction"]
// CHECK: nova.attend_gradient_point {{.*}} {causal = false, results = ["k", "v"],
func.func @long(%g: tensor<2x3x6xf32>, %q: tensor<2x3x4xf32>, %k: tensor<2x300x4xf32>, %v: tensor<2x300x6xf32>, %l: tensor<2x3xf32>, %d: tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<2x300x4xf32>, tensor<2x300x6xf32>) {
  %0:3 = "nova.attend_gradient"(%g, %q, %k, %v, %l, %d) {maps = [#o, #q, #k, #v, #l, #l, #q, #k, #v], causal = false, scale = 1.0 : f64} : (tensor<2x3x6xf32>, tensor<2x3x4xf32>, tensor<2x300x4xf32>, tensor<2x300x6xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<2x300x4xf32>, tensor<2x300x6xf32>)
  return %0#0, %0#1, %0#2 : tensor<2x3x4xf32>, tensor<2x300x4xf32>, tensor<2x300x6xf32>
}
