// RUN: %nova-opt %s --convolve-channels-last='sink=false' | %filecheck %s

// One contraction, which reads the windows of padded images where they are.
// CHECK-LABEL: func.func @forward(
// CHECK: %[[PAD:.*]] = nova.pad {{.*}}tensor<2x16x11x9xbf16>
// CHECK: %[[LAST:.*]] = nova.permute %[[PAD]] {{.*}}tensor<2x11x9x16xbf16>
// CHECK-NOT: nova.windows
// CHECK: nova.conv_channels_last %[[LAST]], {{.*}}tensor<24x3x3x16xbf16>) -> tensor<2x9x7x24xbf16>
func.func @forward(%w: tensor<24x144xbf16>, %x: tensor<2x16x9x7xbf16>) -> tensor<2x24x63xbf16> {
  %0 = "nova.pad"(%x) {high = array<i64: 0, 0, 1, 1>, low = array<i64: 0, 0, 1, 1>, value = 0.0 : f64} : (tensor<2x16x9x7xbf16>) -> tensor<2x16x11x9xbf16>
  %1 = "nova.windows"(%0) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>} : (tensor<2x16x11x9xbf16>) -> tensor<2x16x3x3x9x7xbf16>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 144, 63>} : (tensor<2x16x3x3x9x7xbf16>) -> tensor<2x144x63xbf16>
  %3 = "nova.matmul"(%w, %2) : (tensor<24x144xbf16>, tensor<2x144x63xbf16>) -> tensor<2x24x63xbf16>
  return %3 : tensor<2x24x63xbf16>
}

// The gradient of the weight: widened operands are read as they are, the result is rounded once.
// CHECK-LABEL: func.func @weight_gradient(
// CHECK-NOT: nova.windows
// CHECK: nova.matmul {{.*}}(tensor<24x126xbf16>, tensor<126x16xbf16>) -> tensor<24x16xbf16>
// CHECK-NOT: nova.sum
func.func @weight_gradient(%x: tensor<2x16x9x7xbf16>, %g: tensor<2x24x63xbf16>) -> tensor<24x16xbf16> {
  %0 = "nova.cast"(%x) {dtype = f32} : (tensor<2x16x9x7xbf16>) -> tensor<2x16x9x7xf32>
  %1 = "nova.windows"(%0) {dilation = array<i64: 1, 1>, kernel = array<i64: 1, 1>, stride = array<i64: 1, 1>} : (tensor<2x16x9x7xf32>) -> tensor<2x16x1x1x9x7xf32>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 16, 63>} : (tensor<2x16x1x1x9x7xf32>) -> tensor<2x16x63xf32>
  %3 = "nova.permute"(%2) {axes = array<i64: 0, 2, 1>} : (tensor<2x16x63xf32>) -> tensor<2x63x16xf32>
  %4 = "nova.cast"(%g) {dtype = f32} : (tensor<2x24x63xbf16>) -> tensor<2x24x63xf32>
  %5 = "nova.matmul"(%4, %3) : (tensor<2x24x63xf32>, tensor<2x63x16xf32>) -> tensor<2x24x16xf32>
  %6 = "nova.sum"(%5) {axis = array<i64: 0>, keepdims = false} : (tensor<2x24x16xf32>) -> tensor<24x16xf32>
  %7 = "nova.cast"(%6) {dtype = bf16} : (tensor<24x16xf32>) -> tensor<24x16xbf16>
  return %7 : tensor<24x16xbf16>
}

// The gradient of a weight of several taps is one contraction as well.
// CHECK-LABEL: func.func @weight_gradient_of_taps(
// CHECK-NOT: nova.windows
// CHECK: nova.conv_channels_last_weight_gradient {{.*}}(tensor<2x9x7x16xbf16>, tensor<2x7x5x24xbf16>) -> tensor<24x3x3x16xbf16>
// CHECK-NOT: nova.sum
func.func @weight_gradient_of_taps(%x: tensor<2x16x9x7xbf16>, %g: tensor<2x24x35xbf16>) -> tensor<24x144xbf16> {
  %1 = "nova.windows"(%x) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>} : (tensor<2x16x9x7xbf16>) -> tensor<2x16x3x3x7x5xbf16>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 144, 35>} : (tensor<2x16x3x3x7x5xbf16>) -> tensor<2x144x35xbf16>
  %3 = "nova.permute"(%2) {axes = array<i64: 0, 2, 1>} : (tensor<2x144x35xbf16>) -> tensor<2x35x144xbf16>
  %5 = "nova.matmul"(%g, %3) : (tensor<2x24x35xbf16>, tensor<2x35x144xbf16>) -> tensor<2x24x144xbf16>
  %6 = "nova.sum"(%5) {axis = array<i64: 0>, keepdims = false} : (tensor<2x24x144xbf16>) -> tensor<24x144xbf16>
  return %6 : tensor<24x144xbf16>
}

// The gradient of the data with stride 2: a convolution for each of four residues, of which each
// position selects one; that of one tap is a matmul.
// CHECK-LABEL: func.func @data_gradient(
// CHECK-COUNT-3: nova.conv_channels_last
// CHECK: nova.where
// CHECK: nova.where
// CHECK-NOT: nova.overlap_add
func.func @data_gradient(%w: tensor<24x144xbf16>, %g: tensor<2x24x20xbf16>) -> tensor<2x16x9x7xbf16> {
  %0 = "nova.permute"(%w) {axes = array<i64: 1, 0>} : (tensor<24x144xbf16>) -> tensor<144x24xbf16>
  %1 = "nova.matmul"(%0, %g) : (tensor<144x24xbf16>, tensor<2x24x20xbf16>) -> tensor<2x144x20xbf16>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 16, 3, 3, 5, 4>} : (tensor<2x144x20xbf16>) -> tensor<2x16x3x3x5x4xbf16>
  %3 = "nova.overlap_add"(%2) {dilation = array<i64: 1, 1>, size = array<i64: 11, 9>, stride = array<i64: 2, 2>} : (tensor<2x16x3x3x5x4xbf16>) -> tensor<2x16x11x9xbf16>
  %4 = "nova.slice"(%3) {starts = array<i64: 0, 0, 1, 1>, steps = array<i64: 1, 1, 1, 1>, stops = array<i64: 2, 16, 10, 8>} : (tensor<2x16x11x9xbf16>) -> tensor<2x16x9x7xbf16>
  return %4 : tensor<2x16x9x7xbf16>
}

// f32 stays: its matmuls do not run on tensor cores.
// CHECK-LABEL: func.func @single(
// CHECK: nova.matmul {{.*}}tensor<2x144x35xf32>
func.func @single(%w: tensor<24x144xf32>, %x: tensor<2x16x9x7xf32>) -> tensor<2x24x35xf32> {
  %1 = "nova.windows"(%x) {dilation = array<i64: 1, 1>, kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>} : (tensor<2x16x9x7xf32>) -> tensor<2x16x3x3x7x5xf32>
  %2 = "nova.reshape"(%1) {shape = array<i64: 2, 144, 35>} : (tensor<2x16x3x3x7x5xf32>) -> tensor<2x144x35xf32>
  %3 = "nova.matmul"(%w, %2) : (tensor<24x144xf32>, tensor<2x144x35xf32>) -> tensor<2x24x35xf32>
  return %3 : tensor<2x24x35xf32>
}
