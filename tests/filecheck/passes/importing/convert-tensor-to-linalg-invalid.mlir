// RUN: %nova-opt %s --convert-tensor-to-linalg --split-input-file --verify-diagnostics

func.func @position(%x: tensor<3xindex>) -> tensor<6xindex> {
  // expected-error@+1 {{tensor.pad with a value that depends on the position}}
  %0 = tensor.pad %x low[1] high[2] {
  ^bb0(%i: index):
    tensor.yield %i : index
  } : tensor<3xindex> to tensor<6xindex>
  return %0 : tensor<6xindex>
}

// -----

func.func @size(%x: tensor<9xf32>, %n: index) -> tensor<?xf32> {
  // expected-error@+1 {{tensor.extract_slice with sizes or steps that are not constants}}
  %0 = tensor.extract_slice %x[0] [%n] [1] : tensor<9xf32> to tensor<?xf32>
  return %0 : tensor<?xf32>
}
