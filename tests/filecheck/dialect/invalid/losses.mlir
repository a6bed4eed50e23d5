// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @mse_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.mse_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.mse_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mse_loss_operands() {
  // expected-error @+1 {{'nova.mse_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.mse_loss"() {reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @mae_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.mae_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.mae_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @mae_loss_operands() {
  // expected-error @+1 {{'nova.mae_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.mae_loss"() {reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @smooth_l1_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.smooth_l1_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.smooth_l1_loss"(%arg0, %arg1) {beta = 1.000000e+00 : f64, reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @smooth_l1_loss_operands() {
  // expected-error @+1 {{'nova.smooth_l1_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.smooth_l1_loss"() {beta = 1.000000e+00 : f64, reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @bce_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.bce_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.bce_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bce_loss_operands() {
  // expected-error @+1 {{'nova.bce_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.bce_loss"() {reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @bce_with_logits_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.bce_with_logits_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.bce_with_logits_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @bce_with_logits_loss_operands() {
  // expected-error @+1 {{'nova.bce_with_logits_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.bce_with_logits_loss"() {reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @kl_div_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.kl_div' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.kl_div"(%arg0, %arg1) {log_target = false, reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @kl_div_operands() {
  // expected-error @+1 {{'nova.kl_div' op takes (x, target), has 0 operands}}
  %0 = "nova.kl_div"() {log_target = false, reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @hinge_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) {
  // expected-error @+1 {{'nova.hinge_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.hinge_loss"(%arg0, %arg1) {reduction = "mean"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @hinge_loss_operands() {
  // expected-error @+1 {{'nova.hinge_loss' op takes (x, target), has 0 operands}}
  %0 = "nova.hinge_loss"() {reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @cross_entropy_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.cross_entropy' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.cross_entropy"(%arg0, %arg1) {ignore_index = -100 : i64, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @cross_entropy_operands() {
  // expected-error @+1 {{'nova.cross_entropy' op takes (x, target, weight?), has 0 operands}}
  %0 = "nova.cross_entropy"() {ignore_index = -100 : i64, label_smoothing = 0.000000e+00 : f64, reduction = "mean"} : () -> tensor<f32>
  return
}

// -----

func.func @nll_loss_result(%arg0: tensor<2x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.nll_loss' op result type is bf16[7,7], must be f32[]}}
  %0 = "nova.nll_loss"(%arg0, %arg1) {ignore_index = -100 : i64, reduction = "sum"} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<7x7xbf16>
  return
}

// -----

func.func @nll_loss_operands() {
  // expected-error @+1 {{'nova.nll_loss' op takes (x, target, weight?), has 0 operands}}
  %0 = "nova.nll_loss"() {ignore_index = -100 : i64, reduction = "sum"} : () -> tensor<f32>
  return
}

// -----

func.func @mse_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.mse_loss' op reduction}}
  %0 = "nova.mse_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @mae_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.mae_loss' op reduction}}
  %0 = "nova.mae_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @smooth_l1_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.smooth_l1_loss' op reduction}}
  %0 = "nova.smooth_l1_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @bce_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bce_loss' op reduction}}
  %0 = "nova.bce_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @bce_with_logits_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.bce_with_logits_loss' op reduction}}
  %0 = "nova.bce_with_logits_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @kl_div_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.kl_div' op reduction}}
  %0 = "nova.kl_div"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @hinge_loss_1(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.hinge_loss' op reduction}}
  %0 = "nova.hinge_loss"(%arg0, %arg1) {reduction = "median"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @mse_loss_2(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.mse_loss' op shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2}}
  %0 = "nova.mse_loss"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<f32>
  return
}

// -----

func.func @cross_entropy_1(%arg0: tensor<2x3xf32>, %arg1: tensor<4xi64>) {
  // expected-error @+1 {{'nova.cross_entropy' op target (4,) for scores (2, 3): it should be (2,)}}
  %0 = "nova.cross_entropy"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<f32>
  return
}

// -----

func.func @cross_entropy_2(%arg0: tensor<2x3xf32>, %arg1: tensor<2xi64>) {
  // expected-error @+1 {{'nova.cross_entropy' op reduction}}
  %0 = "nova.cross_entropy"(%arg0, %arg1) {reduction = "median"} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<f32>
  return
}

// -----

func.func @nll_loss_1(%arg0: tensor<2x3xf32>, %arg1: tensor<2xf32>) {
  // expected-error @+1 {{'nova.nll_loss' op a target of f32}}
  %0 = "nova.nll_loss"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<f32>
  return
}
