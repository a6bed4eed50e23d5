// RUN: %nova-opt %s --expand-math | %filecheck %s
// RUN: %nova-opt %s --expand-math='native-rounding=false' | %filecheck %s --check-prefix=OLD
// RUN: %nova-opt %s --expand-math='native-exp2=true' | %filecheck %s --check-prefix=EXP2
// RUN: %nova-opt %s --expand-math='native-scale=true' | %filecheck %s --check-prefix=SCALE

// Functions that would become library calls are arithmetic, without branches and calls.
// CHECK-LABEL: func.func @scalars(
// CHECK-NOT: {{math\.(exp|log|sin|erf|powf)}}
// CHECK-NOT: {{scf|cf\.|call}}
// CHECK: arith.bitcast
// CHECK: return
func.func @scalars(%x: f32, %y: f64) -> (f32, f64, f32, f64, f32) {
  %0 = math.exp %x : f32
  %1 = math.log %y : f64
  %2 = math.sin %x : f32
  %3 = math.erf %y : f64
  %4 = math.powf %x, %x : f32
  return %0, %1, %2, %3, %4 : f32, f64, f32, f64, f32
}

// Vectors stay vectors.
// CHECK-LABEL: func.func @vectors(
// CHECK-NOT: math.tanh
// CHECK: arith.mulf %{{.*}} : vector<8xf32>
// CHECK: return
func.func @vectors(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.tanh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// What LLVM has instructions for stays; rounding depends on the machine.
// CHECK-LABEL: func.func @kept(
// CHECK: math.sqrt
// CHECK: math.absf
// CHECK: math.floor
// OLD-LABEL: func.func @kept(
// OLD: math.sqrt
// OLD: math.absf
// OLD-NOT: math.floor
func.func @kept(%x: f32) -> (f32, f32, f32) {
  %0 = math.sqrt %x : f32
  %1 = math.absf %x : f32
  %2 = math.floor %x : f32
  return %0, %1, %2 : f32, f32, f32
}

// The remainder is exact, by a loop over the bits of the quotient: the one thing with a branch.
// CHECK-LABEL: func.func @remainder(
// CHECK: scf.for
// CHECK-NOT: arith.remf
// CHECK: return
func.func @remainder(%x: f32, %y: f32) -> f32 {
  %0 = arith.remf %x, %y : f32
  return %0 : f32
}

// A sigmoid is one function, whose exp is never clamped at 89 where it would overflow; an exp that
// something else uses stays one, too.
// CHECK-LABEL: func.func @sigmoid(
// CHECK-NOT: dense<8.900000e+01>
// CHECK: arith.divf %{{.*}} : vector<8xf32>
// CHECK-NOT: dense<8.900000e+01>
// CHECK: return
// CHECK-LABEL: func.func @exp_and_sigmoid(
// CHECK: 8.900000e+01
// CHECK: arith.divf %{{.*}} : f32
// CHECK: return
func.func @sigmoid(%x: vector<8xf32>) -> vector<8xf32> {
  %one = arith.constant dense<1.0> : vector<8xf32>
  %0 = math.exp %x : vector<8xf32>
  %1 = arith.addf %0, %one : vector<8xf32>
  %2 = arith.divf %one, %1 : vector<8xf32>
  return %2 : vector<8xf32>
}
func.func @exp_and_sigmoid(%x: f32) -> (f32, f32) {
  %one = arith.constant 1.0 : f32
  %0 = math.exp %x : f32
  %1 = arith.addf %0, %one : f32
  %2 = arith.divf %one, %1 : f32
  return %0, %2 : f32, f32
}

// Where 2**x is an instruction, that is what is left of an exponential of f32, scaled.
// CHECK-LABEL: func.func @exponentials(
// CHECK-NOT: math.exp
// CHECK: return
// EXP2-LABEL: func.func @exponentials(
// EXP2: %[[N:.*]] = arith.subf
// EXP2: %[[LEFT:.*]] = math.fma %arg0,
// EXP2: %[[R:.*]] = math.fma %arg0, %{{.*}}, %[[LEFT]]
// EXP2: %[[P:.*]] = math.exp2 %[[R]] : f32
// EXP2: arith.mulf %[[P]]
// EXP2: math.exp2 %{{.*}} : f32
// EXP2-NOT: math.exp
// EXP2: return
func.func @exponentials(%x: f32, %y: f64) -> (f32, f32, f64) {
  %0 = math.exp %x : f32
  %1 = math.exp2 %x : f32
  %2 = math.exp %y : f64
  return %0, %1, %2 : f32, f32, f64
}

// Powers of two are factors; with AVX-512, an instruction for vectors of 512 bits.
// CHECK-LABEL: func.func @powers(
// CHECK-NOT: scalef
// CHECK: return
// SCALE-LABEL: func.func @powers(
// SCALE: scalef.ps.512
// SCALE: scalef.pd.512
// SCALE-NOT: scalef
// SCALE: return
func.func @powers(
    %x: vector<16xf32>, %y: vector<8xf64>, %z: vector<8xf32>
) -> (vector<16xf32>, vector<8xf64>, vector<8xf32>) {
  %0 = math.exp %x : vector<16xf32>
  %1 = math.exp2 %y : vector<8xf64>
  %2 = math.exp %z : vector<8xf32>
  return %0, %1, %2 : vector<16xf32>, vector<8xf64>, vector<8xf32>
}
