// RUN: %nova-opt %s --canonicalize-nova | %filecheck %s

// --- fold_constants

// CHECK-LABEL: func.func @folds_constants(
// CHECK-NEXT: %[[C:.*]] = nova.constant dense<[4.000000e+00, 6.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: return %[[C]]
func.func @folds_constants() -> tensor<2xf32> {
  %0 = "nova.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %1 = "nova.constant"() {value = dense<[3.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %2 = "nova.add"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}

// Folding computes in the op's own type: 200 + 100 wraps in u8.
// CHECK-LABEL: func.func @folds_unsigned(
// CHECK-NEXT: nova.constant dense<44> : tensor<ui8>
func.func @folds_unsigned() -> tensor<ui8> {
  %0 = "nova.constant"() {value = dense<200> : tensor<ui8>} : () -> tensor<ui8>
  %1 = "nova.constant"() {value = dense<100> : tensor<ui8>} : () -> tensor<ui8>
  %2 = "nova.add"(%0, %1) : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
  return %2 : tensor<ui8>
}

// CHECK-LABEL: func.func @folds_casts_and_views(
// CHECK-NEXT: nova.constant dense<{{\[\[}}1, 3], [2, 4]]> : tensor<2x2xi64>
// CHECK-NEXT: return
func.func @folds_casts_and_views() -> tensor<2x2xi64> {
  %0 = "nova.constant"() {value = dense<[[1.5, 2.5], [3.5, 4.5]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
  %1 = "nova.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = "nova.cast"(%1) {dtype = i64} : (tensor<2x2xf32>) -> tensor<2x2xi64>
  return %2 : tensor<2x2xi64>
}

// NaN and infinity are values like any other.
// CHECK-LABEL: func.func @folds_to_infinity(
// CHECK-NEXT: nova.constant dense<0x7F800000> : tensor<f32>
func.func @folds_to_infinity() -> tensor<f32> {
  %0 = "nova.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %1 = "nova.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %2 = "nova.div"(%0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// More than 64 elements are better computed than stored.
// CHECK-LABEL: func.func @keeps_large_results(
// CHECK: nova.expand
func.func @keeps_large_results() -> tensor<65xf32> {
  %0 = "nova.constant"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %1 = "nova.expand"(%0) {shape = array<i64: 65>} : (tensor<1xf32>) -> tensor<65xf32>
  return %1 : tensor<65xf32>
}

// CHECK-LABEL: func.func @keeps_what_arguments_decide(
// CHECK: nova.add
func.func @keeps_what_arguments_decide(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "nova.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %1 = "nova.add"(%x, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// Same seed, same numbers: but they come from the run, whose generator is the target's own.
// CHECK-LABEL: func.func @keeps_random_numbers(
// CHECK: nova.uniform
func.func @keeps_random_numbers() -> tensor<2xf32> {
  %0 = "nova.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %1 = "nova.uniform"(%0) {shape = array<i64: 2>, stream = 0 : i64} : (tensor<i64>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_barriers(
// CHECK: nova.barrier
func.func @keeps_barriers() -> tensor<f32> {
  %0 = "nova.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %1 = "nova.barrier"(%0, %0) {region = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// --- drop_identities

// CHECK-LABEL: func.func @drops_identities(
// CHECK-SAME: %[[X:.*]]: tensor<2xf32>
// CHECK-NEXT: return %[[X]]
func.func @drops_identities(%x: tensor<2xf32>) -> tensor<2xf32> {
  %one = "nova.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %zero = "nova.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nova.mul"(%x, %one) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %1 = "nova.mul"(%one, %0) : (tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
  %2 = "nova.div"(%1, %one) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %3 = "nova.pow"(%2, %one) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %4 = "nova.sub"(%3, %zero) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %5 = "nova.detach"(%4) : (tensor<2xf32>) -> tensor<2xf32>
  %6 = "nova.cast"(%5) {dtype = f32} : (tensor<2xf32>) -> tensor<2xf32>
  %7 = "nova.reshape"(%6) {shape = array<i64: 2>} : (tensor<2xf32>) -> tensor<2xf32>
  %8 = "nova.expand"(%7) {shape = array<i64: 2>} : (tensor<2xf32>) -> tensor<2xf32>
  return %8 : tensor<2xf32>
}

// CHECK-LABEL: func.func @drops_integer_zero(
// CHECK-SAME: %[[X:.*]]: tensor<2xi32>
// CHECK-NEXT: return %[[X]]
func.func @drops_integer_zero(%x: tensor<2xi32>) -> tensor<2xi32> {
  %zero = "nova.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
  %0 = "nova.add"(%x, %zero) : (tensor<2xi32>, tensor<i32>) -> tensor<2xi32>
  %1 = "nova.add"(%zero, %0) : (tensor<i32>, tensor<2xi32>) -> tensor<2xi32>
  return %1 : tensor<2xi32>
}

// -0 + 0 is 0.
// CHECK-LABEL: func.func @keeps_float_plus_zero(
// CHECK: nova.add
func.func @keeps_float_plus_zero(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = "nova.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nova.add"(%x, %zero) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -0 - -0 is 0.
// CHECK-LABEL: func.func @keeps_minus_negative_zero(
// CHECK: nova.sub
func.func @keeps_minus_negative_zero(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = "nova.constant"() {value = dense<-0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nova.sub"(%x, %zero) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// 0 - x negates, and x * 0 may be NaN.
// CHECK-LABEL: func.func @keeps_zero_minus_and_times_zero(
// CHECK: nova.sub
// CHECK: nova.mul
func.func @keeps_zero_minus_and_times_zero(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = "nova.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nova.sub"(%zero, %x) : (tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = "nova.mul"(%0, %zero) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// The other operand widens the result: x * 1 is not x.
// CHECK-LABEL: func.func @keeps_broadcasts(
// CHECK: nova.mul
func.func @keeps_broadcasts(%x: tensor<2xf32>) -> tensor<3x2xf32> {
  %one = "nova.constant"() {value = dense<1.0> : tensor<3x1xf32>} : () -> tensor<3x1xf32>
  %0 = "nova.mul"(%x, %one) : (tensor<2xf32>, tensor<3x1xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// CHECK-LABEL: func.func @keeps_half_ones(
// CHECK: nova.mul
func.func @keeps_half_ones(%x: tensor<2xf32>) -> tensor<2xf32> {
  %one = "nova.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "nova.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_casts_that_lose(
// CHECK: nova.cast
// CHECK: nova.cast
func.func @keeps_casts_that_lose(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "nova.cast"(%x) {dtype = f16} : (tensor<2xf32>) -> tensor<2xf16>
  %1 = "nova.cast"(%0) {dtype = f32} : (tensor<2xf16>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// relu6 and its relatives stop the gradient so: nothing of it is left in the forward computation.
// CHECK-LABEL: func.func @drops_where_of_equal_values(
// CHECK-NEXT: nova.clamp
// CHECK-NEXT: return
func.func @drops_where_of_equal_values(%c: tensor<4xi1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.detach"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "nova.where"(%c, %0, %x) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "nova.clamp"(%1) {max = 6.0 : f64, min = 0.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// The condition broadcasts the value.
// CHECK-LABEL: func.func @keeps_a_where_that_broadcasts(
// CHECK-NEXT: nova.where
func.func @keeps_a_where_that_broadcasts(%c: tensor<4xi1>, %x: tensor<1xf32>) -> tensor<4xf32> {
  %0 = "nova.where"(%c, %x, %x) : (tensor<4xi1>, tensor<1xf32>, tensor<1xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// --- drop_double_negation

// CHECK-LABEL: func.func @drops_double_negation(
// CHECK-SAME: %[[X:.*]]: tensor<2xf32>
// CHECK-NEXT: return %[[X]]
func.func @drops_double_negation(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "nova.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "nova.neg"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_single_negation(
// CHECK: nova.neg
// CHECK: nova.abs
func.func @keeps_single_negation(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "nova.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "nova.abs"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// --- square_powers

// CHECK-LABEL: func.func @squares(
// CHECK-SAME: %[[X:.*]]: tensor<2xf32>
// CHECK-NEXT: %[[Y:.*]] = nova.mul %[[X]], %[[X]]
// CHECK-NEXT: return %[[Y]]
func.func @squares(%x: tensor<2xf32>) -> tensor<2xf32> {
  %two = "nova.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nova.pow"(%x, %two) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @keeps_other_powers(
// CHECK: nova.pow
func.func @keeps_other_powers(%x: tensor<2xf32>) -> tensor<2xf32> {
  %c = "nova.constant"() {value = dense<[2.0, 3.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "nova.pow"(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// --- merge_reshapes

// CHECK-LABEL: func.func @merges_reshapes(
// CHECK-SAME: %[[X:.*]]: tensor<2x6xf32>
// CHECK-NEXT: nova.reshape %[[X]] {shape = array<i64: 3, 4>}
// CHECK-NEXT: return
func.func @merges_reshapes(%x: tensor<2x6xf32>) -> tensor<3x4xf32> {
  %0 = "nova.reshape"(%x) {shape = array<i64: 12>} : (tensor<2x6xf32>) -> tensor<12xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 3, 4>} : (tensor<12xf32>) -> tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @drops_reshape_and_back(
// CHECK-SAME: %[[X:.*]]: tensor<2x6xf32>
// CHECK-NEXT: return %[[X]]
func.func @drops_reshape_and_back(%x: tensor<2x6xf32>) -> tensor<2x6xf32> {
  %0 = "nova.reshape"(%x) {shape = array<i64: 12>} : (tensor<2x6xf32>) -> tensor<12xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 2, 6>} : (tensor<12xf32>) -> tensor<2x6xf32>
  return %1 : tensor<2x6xf32>
}

// --- merge_permutes

// CHECK-LABEL: func.func @merges_permutes(
// CHECK-SAME: %[[X:.*]]: tensor<2x3x4xf32>
// CHECK-NEXT: nova.permute %[[X]] {axes = array<i64: 2, 1, 0>} : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>
// CHECK-NEXT: return
func.func @merges_permutes(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %1 = "nova.permute"(%0) {axes = array<i64: 1, 0, 2>} : (tensor<3x4x2xf32>) -> tensor<4x3x2xf32>
  return %1 : tensor<4x3x2xf32>
}

// CHECK-LABEL: func.func @drops_transpose_and_back(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>
// CHECK-NEXT: return %[[X]]
func.func @drops_transpose_and_back(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = "nova.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// A transpose of a square keeps the type and still moves the elements.
// CHECK-LABEL: func.func @keeps_square_transpose(
// CHECK: nova.permute
func.func @keeps_square_transpose(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// --- merge_flips

// CHECK-LABEL: func.func @drops_flip_and_back(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>
// CHECK-NEXT: return %[[X]]
func.func @drops_flip_and_back(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.flip"(%x) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = "nova.flip"(%0) {axes = array<i64: -1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @keeps_flips_of_other_axes(
// CHECK: nova.flip
// CHECK: nova.flip
func.func @keeps_flips_of_other_axes(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.flip"(%x) {axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = "nova.flip"(%0) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// --- what nobody uses goes

// CHECK-LABEL: func.func @erases_the_dead(
// CHECK-NEXT: return
func.func @erases_the_dead(%x: tensor<2xf32>) {
  %0 = "nova.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "nova.log"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// --- widen_last, narrow_first

// CHECK-LABEL: func.func @widens_last(
// CHECK-SAME: %[[X:.*]]: tensor<2x3x8xbf16>
// CHECK: %[[R:.*]] = nova.reshape{{.*}}%[[X]]{{.*}}tensor<6x8xbf16>
// CHECK: nova.cast{{.*}}tensor<6x8xf32>
func.func @widens_last(%x: tensor<2x3x8xbf16>) -> tensor<6x8xf32> {
  %0 = "nova.cast"(%x) {dtype = f32} : (tensor<2x3x8xbf16>) -> tensor<2x3x8xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 6, 8>} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  return %1 : tensor<6x8xf32>
}

// CHECK-LABEL: func.func @narrows_first(
// CHECK: nova.cast{{.*}}tensor<6x8xbf16>
// CHECK: nova.reshape{{.*}}tensor<2x3x8xbf16>
func.func @narrows_first(%x: tensor<6x8xf32>) -> tensor<2x3x8xbf16> {
  %0 = "nova.reshape"(%x) {shape = array<i64: 2, 3, 8>} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %1 = "nova.cast"(%0) {dtype = bf16} : (tensor<2x3x8xf32>) -> tensor<2x3x8xbf16>
  return %1 : tensor<2x3x8xbf16>
}
