// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @complex_result(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.complex' op result type is f32[4], must be complex64[4]}}
  %0 = "nova.complex"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @complex_parts(%arg0: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{'nova.complex' op the parts of a complex number are real, not complex64 and complex64}}
  %0 = "nova.complex"(%arg0, %arg0) : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  return
}

// -----

func.func @real_of_real(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.real' op a complex tensor is read, not f32[4]}}
  %0 = "nova.real"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @imag_result(%arg0: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{'nova.imag' op result type is f64[4], must be f32[4]}}
  %0 = "nova.imag"(%arg0) : (tensor<4xcomplex<f32>>) -> tensor<4xf64>
  return
}

// -----

func.func @from_parts_of_three(%arg0: tensor<4x3xf32>) {
  // expected-error @+1 {{'nova.from_parts' op f32[4,3] has no last axis of two parts}}
  %0 = "nova.from_parts"(%arg0) : (tensor<4x3xf32>) -> tensor<4xcomplex<f32>>
  return
}

// -----

func.func @as_parts_of_real(%arg0: tensor<4xf32>) {
  // expected-error @+1 {{'nova.as_parts' op a complex tensor is read, not f32[4]}}
  %0 = "nova.as_parts"(%arg0) : (tensor<4xf32>) -> tensor<4x2xf32>
  return
}
