#pragma once

#include <string>

namespace imgd::data {

/// What tells one class of synthetic pictures from another: an outline, what it is filled with, and how its
/// border is drawn. Colour, size, place, rotation and light do not.
struct SynthClass {
  int shape = 0;
  int fill = 0;
  int border = 0;
};

constexpr int kSynthShapes = 25;
/// No shape reaches farther from its centre than this, in its radii.
inline constexpr float kShapeExtent = 1.2F;
constexpr int kSynthFills = 10;
constexpr int kSynthBorders = 4;
constexpr int kMaxSynthClasses = kSynthShapes * kSynthFills * kSynthBorders;

/// Class `index`, below kMaxSynthClasses: all are different, and the first 25 differ in shape.
SynthClass SynthClassOf(int index);

/// "c03-star-dots", padded so that the names of `classes` classes sort by index.
std::string SynthClassName(int index, int classes);

/// Distance of (x, y) from the outline of a shape that about fills the unit circle; negative inside. Exact
/// near straight and round edges, which is where it is used to smooth them.
float ShapeDistance(int shape, float x, float y);

/// How much of the second colour is at (x, y) of a shape's own coordinates, 0 to 1. `pixel` is a pixel's
/// size there, `variant` any number that distinguishes pictures.
float FillValue(int fill, float x, float y, float pixel, unsigned variant);

/// How much of the border's colour is at a point `distance` from the outline (negative: inside), 0 to 1.
float BorderValue(int border, float distance, float x, float y, float pixel);

/// 1 where `distance` is below zero, 0 above, and a ramp one pixel wide between.
float Coverage(float distance, float pixel);

/// Smooth noise in [0, 1] with features of about size 1: a function of its arguments only.
float ValueNoise(float x, float y, unsigned variant);

}  // namespace imgd::data
