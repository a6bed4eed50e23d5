// RUN: %nova-opt %s --device-to-outlined --canonicalize | %filecheck %s

// The split: what is inside of a launch moves to a module for the device, with what it needs from
// outside as arguments and constants of its own; the launch names it.
// CHECK: module attributes {gpu.container_module}
// CHECK-LABEL: func.func @my_model(
// CHECK-SAME: %[[X:.*]]: memref<32xf32>)
// CHECK: gpu.launch_func @my_model_kernel::@my_model_kernel blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1) args(%[[X]] : memref<32xf32>)
// CHECK: return
// CHECK: gpu.module @my_model_kernel
// CHECK: gpu.func @my_model_kernel(%[[OWN:.*]]: memref<32xf32>) kernel
// CHECK-SAME: known_block_size = array<i32: 32, 1, 1>
// CHECK-SAME: known_grid_size = array<i32: 1, 1, 1>
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00
// CHECK: %[[THREAD:.*]] = gpu.thread_id x
// CHECK: %[[OLD:.*]] = memref.load %[[OWN]][%[[THREAD]]]
// CHECK: %[[NEW:.*]] = arith.mulf %[[OLD]], %[[TWO]]
// CHECK: memref.store %[[NEW]], %[[OWN]][%[[THREAD]]]
// CHECK: gpu.return
func.func @my_model(%x: memref<32xf32>) {
  %one = arith.constant 1 : index
  %threads = arith.constant 32 : index
  %two = arith.constant 2.0 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %one, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %one, %sz = %one) {
    %0 = memref.load %x[%tx] : memref<32xf32>
    %1 = arith.mulf %0, %two : f32
    memref.store %1, %x[%tx] : memref<32xf32>
    gpu.terminator
  }
  return
}
