// RUN: %nova-opt %s --expand-math --verify-diagnostics

func.func @half(%x: f16) -> f16 {
  // expected-error @+1 {{math.exp}}
  %0 = math.exp %x : f16
  return %0 : f16
}
