// RUN: %nova-opt %s --materialize-pads --canonicalize | %filecheck %s

#id = affine_map<(y, x) -> (y, x)>
#window = affine_map<(y, x, ky, kx) -> (y * 2 + ky, x + kx)>
#taps = affine_map<(y, x, ky, kx) -> (ky, kx)>
#out = affine_map<(y, x, ky, kx) -> (y, x)>

// A padding that windows read is a fill, and a copy to the middle of it.
// CHECK: #[[AT:.*]] = affine_map<(d0, d1) -> (d0 + 1, d1 + 2)>
// CHECK-LABEL: func.func @windows
// CHECK: %[[FILL:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<9x12xf32>)
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[AT]]], {{.*}} ins(%arg0 : tensor<8x8xf32>) outs(%[[FILL]] : tensor<9x12xf32>)
// CHECK-NOT: tensor.extract
func.func @windows(%x: tensor<8x8xf32>, %w: tensor<3x3xf32>, %c: tensor<4x10xf32>) -> tensor<4x10xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c7 = arith.constant 7 : index
  %c8 = arith.constant 8 : index
  %empty = tensor.empty() : tensor<9x12xf32>
  %pad = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%empty : tensor<9x12xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %y = arith.subi %i, %c1 : index
    %x0 = arith.subi %j, %c2 : index
    %a = arith.cmpi sge, %y, %c0 : index
    %b = arith.cmpi slt, %y, %c8 : index
    %d = arith.cmpi sge, %x0, %c0 : index
    %e = arith.cmpi slt, %x0, %c8 : index
    %ab = arith.andi %a, %b : i1
    %de = arith.andi %d, %e : i1
    %in = arith.andi %ab, %de : i1
    %y1 = arith.maxsi %y, %c0 : index
    %y2 = arith.minsi %y1, %c7 : index
    %x1 = arith.maxsi %x0, %c0 : index
    %x2 = arith.minsi %x1, %c7 : index
    %v = tensor.extract %x[%y2, %x2] : tensor<8x8xf32>
    %s = arith.select %in, %v, %zero : f32
    linalg.yield %s : f32
  } -> tensor<9x12xf32>
  %r = linalg.generic {indexing_maps = [#window, #taps, #out], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%pad, %w : tensor<9x12xf32>, tensor<3x3xf32>) outs(%c : tensor<4x10xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x10xf32>
  return %r : tensor<4x10xf32>
}

// One that is read once at each position stays, and so does a reversal, which is not a padding.
// CHECK-LABEL: func.func @others
// CHECK-NOT: linalg.fill
// CHECK-COUNT-2: tensor.extract
func.func @others(%x: tensor<8xf32>, %w: tensor<3xf32>, %c: tensor<10xf32>, %d: tensor<8xf32>) -> (tensor<10xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %c8 = arith.constant 8 : index
  %empty = tensor.empty() : tensor<10xf32>
  %pad = linalg.generic {indexing_maps = [affine_map<(x) -> (x)>], iterator_types = ["parallel"]} outs(%empty : tensor<10xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %y = arith.subi %i, %c1 : index
    %a = arith.cmpi sge, %y, %c0 : index
    %b = arith.cmpi slt, %y, %c8 : index
    %in = arith.andi %a, %b : i1
    %y1 = arith.maxsi %y, %c0 : index
    %y2 = arith.minsi %y1, %c7 : index
    %v = tensor.extract %x[%y2] : tensor<8xf32>
    %s = arith.select %in, %v, %zero : f32
    linalg.yield %s : f32
  } -> tensor<10xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(x) -> (x)>, affine_map<(x) -> (x)>], iterator_types = ["parallel"]} ins(%pad : tensor<10xf32>) outs(%c : tensor<10xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<10xf32>
  %flip = linalg.generic {indexing_maps = [affine_map<(x) -> (x)>], iterator_types = ["parallel"]} outs(%empty : tensor<10xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %y = arith.subi %c8, %i : index
    %a = arith.cmpi sge, %y, %c0 : index
    %b = arith.cmpi slt, %y, %c8 : index
    %in = arith.andi %a, %b : i1
    %y1 = arith.maxsi %y, %c0 : index
    %y2 = arith.minsi %y1, %c7 : index
    %v = tensor.extract %x[%y2] : tensor<8xf32>
    %s = arith.select %in, %v, %zero : f32
    linalg.yield %s : f32
  } -> tensor<10xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(x, k) -> (x + k)>, affine_map<(x, k) -> (k)>, affine_map<(x, k) -> (x)>], iterator_types = ["parallel", "reduction"]} ins(%flip, %w : tensor<10xf32>, tensor<3xf32>) outs(%d : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r, %q : tensor<10xf32>, tensor<8xf32>
}
