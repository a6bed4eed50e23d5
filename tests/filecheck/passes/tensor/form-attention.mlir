// RUN: %nova-opt %s --form-attention --cse | %filecheck %s

// Heads that are cut out of one product are read where they lie, and the transposed result is
// written that way.
// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, 0, d1, d4)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 1, d1, d4)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, 2, d1, d5)>
// CHECK-DAG: #[[O:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d5)>
// CHECK-DAG: #[[L:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @heads(
// CHECK: %[[QKV:.*]] = nova.reshape %arg0 {shape = array<i64: 2, 5, 3, 4, 8>}
// CHECK-NOT: nova.slice
// CHECK-NOT: nova.permute
// CHECK: %[[A:.*]]:2 = nova.attend %[[QKV]], %[[QKV]], %[[QKV]] {causal = true, maps = [#[[Q]], #[[K]], #[[V]], #[[O]], #[[L]]], scale = 5.000000e-01 : f64} : {{.*}} -> (tensor<2x5x4x8xf32>, tensor<2x4x5xf32>)
// CHECK: nova.reshape %[[A]]#0 {shape = array<i64: 2, 5, 32>}
func.func @heads(%qkv: tensor<2x5x96xf32>) -> tensor<2x5x32xf32> {
  %0 = "nova.slice"(%qkv) {starts = array<i64: 0, 0, 0>, stops = array<i64: 2, 5, 32>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x96xf32>) -> tensor<2x5x32xf32>
  %1 = "nova.slice"(%qkv) {starts = array<i64: 0, 0, 32>, stops = array<i64: 2, 5, 64>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x96xf32>) -> tensor<2x5x32xf32>
  %2 = "nova.slice"(%qkv) {starts = array<i64: 0, 0, 64>, stops = array<i64: 2, 5, 96>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x96xf32>) -> tensor<2x5x32xf32>
  %3 = "nova.reshape"(%0) {shape = array<i64: 2, 5, 4, 8>} : (tensor<2x5x32xf32>) -> tensor<2x5x4x8xf32>
  %4 = "nova.reshape"(%1) {shape = array<i64: 2, 5, 4, 8>} : (tensor<2x5x32xf32>) -> tensor<2x5x4x8xf32>
  %5 = "nova.reshape"(%2) {shape = array<i64: 2, 5, 4, 8>} : (tensor<2x5x32xf32>) -> tensor<2x5x4x8xf32>
  %6 = "nova.permute"(%3) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
  %7 = "nova.permute"(%4) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
  %8 = "nova.permute"(%5) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
  %9 = "nova.scaled_dot_product_attention"(%6, %7, %8) {causal = true, scale = 0.5 : f64} : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %10 = "nova.permute"(%9) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x4x5x8xf32>) -> tensor<2x5x4x8xf32>
  %11 = "nova.reshape"(%10) {shape = array<i64: 2, 5, 32>} : (tensor<2x5x4x8xf32>) -> tensor<2x5x32xf32>
  return %11 : tensor<2x5x32xf32>
}

// The result and its logsumexp are one op; f16 is computed in f32 and rounded behind.
// CHECK-LABEL: func.func @together(
// CHECK: %[[A:.*]]:2 = nova.attend %arg0, %arg1, %arg2, %arg3 {{.*}} -> (tensor<3x4xf32>, tensor<3xf32>)
// CHECK-NOT: nova.attend
// CHECK: %[[O:.*]] = nova.cast %[[A]]#0 {dtype = f16}
// CHECK: return %[[O]], %[[A]]#1
func.func @together(%q: tensor<3x4xf16>, %k: tensor<5x4xf16>, %v: tensor<5x4xf16>, %m: tensor<3x5xi1>) -> (tensor<3x4xf16>, tensor<3xf32>) {
  %0 = "nova.scaled_dot_product_attention"(%q, %k, %v, %m) : (tensor<3x4xf16>, tensor<5x4xf16>, tensor<5x4xf16>, tensor<3x5xi1>) -> tensor<3x4xf16>
  %1 = "nova.attention_logsumexp"(%q, %k, %m) : (tensor<3x4xf16>, tensor<5x4xf16>, tensor<3x5xi1>) -> tensor<3xf32>
  return %0, %1 : tensor<3x4xf16>, tensor<3xf32>
}

// Gradients of the same operands are one op, those of others another.
// CHECK-LABEL: func.func @gradients(
// CHECK: %[[G:.*]]:3 = nova.attend_gradient %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {causal = false,
// CHECK: %[[H:.*]]:3 = nova.attend_gradient %arg1, %arg1, %arg2, %arg3, %arg4, %arg5 {causal = false,
// CHECK: return %[[G]]#0, %[[G]]#1, %[[H]]#2
func.func @gradients(%g: tensor<3x4xf32>, %q: tensor<3x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %l: tensor<3xf32>, %d: tensor<3xf32>) -> (tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) {
  %0 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {of = "q"} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3x4xf32>
  %1 = "nova.attention_gradient"(%g, %q, %k, %v, %l, %d) {of = "k"} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<5x4xf32>
  %2 = "nova.attention_gradient"(%q, %q, %k, %v, %l, %d) {of = "v"} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<5x4xf32>
  return %0, %1, %2 : tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>
}

// Keys that all heads share are read by all of them; a slice that no map can say is copied first.
// CHECK-LABEL: func.func @shared(
// CHECK: %[[K:.*]] = nova.slice %arg1
// CHECK: nova.attend %arg0, %[[K]], %[[K]]
func.func @shared(%q: tensor<2x3x4xf32>, %k: tensor<7x4xf32>) -> tensor<2x3x4xf32> {
  %0 = "nova.slice"(%k) {starts = array<i64: 1, 0>, stops = array<i64: 6, 4>, steps = array<i64: 1, 1>} : (tensor<7x4xf32>) -> tensor<5x4xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 1, 5, 4>} : (tensor<5x4xf32>) -> tensor<1x5x4xf32>
  %2 = "nova.expand"(%1) {shape = array<i64: 2, 5, 4>} : (tensor<1x5x4xf32>) -> tensor<2x5x4xf32>
  %3 = "nova.scaled_dot_product_attention"(%q, %2, %2) : (tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3x4xf32>
  return %3 : tensor<2x3x4xf32>
}

// The values are computed after the logsumexp: the merged op comes after them.
// CHECK-LABEL: func.func @later_values(
// CHECK: %[[V:.*]] = nova.exp %arg2
// CHECK: %[[A:.*]]:2 = nova.attend %arg0, %arg1, %[[V]]
// CHECK-NOT: nova.attend
// CHECK: return %[[A]]#0, %[[A]]#1
func.func @later_values(%q: tensor<3x4xf32>, %k: tensor<5x4xf32>, %x: tensor<5x4xf32>) -> (tensor<3x4xf32>, tensor<3xf32>) {
  %0 = "nova.attention_logsumexp"(%q, %k) : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3xf32>
  %1 = "nova.exp"(%x) : (tensor<5x4xf32>) -> tensor<5x4xf32>
  %2 = "nova.scaled_dot_product_attention"(%q, %k, %1) : (tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<3x4xf32>
  return %2, %0 : tensor<3x4xf32>, tensor<3xf32>
}

// The values depend on the logsumexp: each op is formed alone.
// CHECK-LABEL: func.func @values_of_the_logsumexp(
// CHECK: %[[L:.*]]:2 = nova.attend %arg0, %arg1, %arg1
// CHECK: %[[V:.*]] = nova.add
// CHECK: %[[A:.*]]:2 = nova.attend %arg0, %arg1, %[[V]]
// CHECK: return %[[A]]#0
func.func @values_of_the_logsumexp(%q: tensor<4x4xf32>, %k: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "nova.attention_logsumexp"(%q, %k) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4xf32>
  %1 = "nova.expand"(%0) {shape = array<i64: 4, 4>} : (tensor<4xf32>) -> tensor<4x4xf32>
  %2 = "nova.add"(%1, %k) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "nova.scaled_dot_product_attention"(%q, %k, %2) : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
