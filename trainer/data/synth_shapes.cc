#include "trainer/data/synth_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace imgd::data {
namespace {

constexpr float kPi = std::numbers::pi_v<float>;

// Parts that shapes are made of: distances as above.
float Disc(float x, float y, float radius) { return std::sqrt(x * x + y * y) - radius; }

float Rectangle(float x, float y, float half_width, float half_height) {
  const float dx = std::abs(x) - half_width;
  const float dy = std::abs(y) - half_height;
  const float outside_x = std::max(dx, 0.0F);
  const float outside_y = std::max(dy, 0.0F);
  return std::sqrt(outside_x * outside_x + outside_y * outside_y) + std::min(std::max(dx, dy), 0.0F);
}

// The point turned into the sector around the x axis of an n-fold symmetric shape.
struct Polar {
  float radius;
  float angle;  // -pi/n to pi/n
};

Polar Fold(float x, float y, int n) {
  const float sector = 2 * kPi / static_cast<float>(n);
  const float angle = std::atan2(y, x);
  return {std::sqrt(x * x + y * y), angle - sector * std::round(angle / sector)};
}

float RegularPolygon(float x, float y, int n) {
  const Polar p = Fold(x, y, n);
  return p.radius * std::cos(p.angle) - 0.95F * std::cos(kPi / static_cast<float>(n));
}

float Star(float x, float y, int points, float inner) {
  constexpr float kOuter = 0.98F;
  const Polar p = Fold(x, y, points);
  const float half = kPi / static_cast<float>(points);
  // The edge from the tip on the axis to the notch at the sector's end; its normal points outwards.
  const float edge_x = inner * std::cos(half) - kOuter;
  const float edge_y = inner * std::sin(half);
  const float length = std::sqrt(edge_x * edge_x + edge_y * edge_y);
  const float px = p.radius * std::cos(p.angle) - kOuter;
  const float py = p.radius * std::abs(std::sin(p.angle));
  return (px * edge_y - py * edge_x) / length;
}

float Heart(float x, float y) {
  constexpr float kSide = 0.95F;
  constexpr float kTurn = 0.70710678F;
  const float down = y + 0.1F;
  const float u = (x + down) * kTurn;
  const float v = (down - x) * kTurn;
  const float lobes = std::min(Disc(u - kSide / 2, v, kSide / 2), Disc(u, v - kSide / 2, kSide / 2));
  return std::min(Rectangle(u, v, kSide / 2, kSide / 2), lobes);
}

float Arrow(float x, float y) {
  const float head = std::max(-y + 0.05F, (std::abs(x) + 0.9F * (y - 0.95F)) / 1.345F);
  return std::min(head, Rectangle(x, y + 0.4F, 0.22F, 0.5F));
}

float Drop(float x, float y) {
  const float tip = std::max(-y - 0.1F, (std::abs(x) + 0.5F * (y - 0.95F)) / 1.118F);
  return std::min(tip, Disc(x, y + 0.32F, 0.58F));
}

float Clover(float x, float y) {
  const float u = std::abs(x);
  const float v = std::abs(y);
  return std::min(Disc(u - 0.5F, v, 0.43F), Disc(u, v - 0.5F, 0.43F));
}

float Gear(float x, float y) {
  const float wave = std::clamp(3 * std::sin(9 * std::atan2(y, x)), -1.0F, 1.0F);
  return std::max(Disc(x, y, 0.78F + 0.15F * wave) * 0.8F, -Disc(x, y, 0.3F));
}

float Zigzag(float x, float y) {
  const float bars =
      std::min(Rectangle(x + 0.3F, y - 0.6F, 0.5F, 0.2F), Rectangle(x - 0.3F, y + 0.6F, 0.5F, 0.2F));
  return std::min(bars, Rectangle(x, y, 0.2F, 0.8F));
}

struct Shape {
  std::string_view name;
  float (*distance)(float x, float y);
};

constexpr std::array<Shape, kSynthShapes> kShapes = {{
    {"circle", [](float x, float y) { return Disc(x, y, 0.85F); }},
    {"triangle", [](float x, float y) { return RegularPolygon(x, y, 3); }},
    {"square", [](float x, float y) { return RegularPolygon(x, y, 4); }},
    {"star", [](float x, float y) { return Star(x, y, 5, 0.42F); }},
    {"ring", [](float x, float y) { return std::abs(Disc(x, y, 0.66F)) - 0.24F; }},
    {"cross",
     [](float x, float y) { return std::min(Rectangle(x, y, 0.92F, 0.28F), Rectangle(x, y, 0.28F, 0.92F)); }},
    {"crescent", [](float x, float y) { return std::max(Disc(x, y, 0.92F), -Disc(x - 0.5F, y, 0.72F)); }},
    {"bars",
     [](float x, float y) {
       return std::min(Rectangle(x, y - 0.5F, 0.78F, 0.24F), Rectangle(x, y + 0.5F, 0.78F, 0.24F));
     }},
    {"heart", [](float x, float y) { return Heart(x, y); }},
    {"hourglass",
     [](float x, float y) {
       return std::max(std::abs(y) - 0.85F, (std::abs(x) - 0.85F * std::abs(y) - 0.08F) / 1.31F);
     }},
    {"hexagon", [](float x, float y) { return RegularPolygon(x, y, 6); }},
    {"arrow", [](float x, float y) { return Arrow(x, y); }},
    {"half", [](float x, float y) { return std::max(Disc(x, y + 0.35F, 0.95F), -y - 0.35F); }},
    {"diamond", [](float x, float y) { return (2 * std::abs(x) + std::abs(y) - 0.97F) / 2.236F; }},
    {"drop", [](float x, float y) { return Drop(x, y); }},
    {"pentagon", [](float x, float y) { return RegularPolygon(x, y, 5); }},
    {"sun", [](float x, float y) { return Star(x, y, 12, 0.66F); }},
    {"clover", [](float x, float y) { return Clover(x, y); }},
    {"gear", [](float x, float y) { return Gear(x, y); }},
    {"corner",
     [](float x, float y) {
       return std::min(Rectangle(x + 0.5F, y, 0.22F, 0.8F), Rectangle(x, y + 0.58F, 0.72F, 0.22F));
     }},
    {"tee",
     [](float x, float y) {
       return std::min(Rectangle(x, y - 0.6F, 0.8F, 0.23F), Rectangle(x, y + 0.1F, 0.23F, 0.8F));
     }},
    {"zigzag", [](float x, float y) { return Zigzag(x, y); }},
    {"horseshoe",
     [](float x, float y) {
       const float legs = Rectangle(std::abs(x) - 0.56F, y + 0.4F, 0.22F, 0.5F);
       return std::min(legs, std::max(std::abs(Disc(x, y - 0.1F, 0.56F)) - 0.22F, 0.1F - y));
     }},
    {"ellipse", [](float x, float y) { return Disc(x, y * 2.1F, 0.95F) * 0.5F; }},
    {"trapezoid",
     [](float x, float y) {
       return std::max(std::abs(y) - 0.5F, (std::abs(x) + 0.6F * y - 0.62F) / 1.166F);
     }},
}};

constexpr std::array<std::string_view, kSynthFills> kFills = {
    "plain", "stripes", "checker", "dots", "rings", "grid", "wedges", "waves", "bricks", "speckle"};
constexpr std::array<std::string_view, kSynthBorders> kBorders = {"", "outlined", "doubled", "dashed"};

uint32_t Hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

float LatticeValue(int x, int y, unsigned variant) {
  const uint32_t hash = Hash(static_cast<uint32_t>(x) + Hash(static_cast<uint32_t>(y) + Hash(variant)));
  return static_cast<float>(hash >> 8) * 0x1p-24F;
}

// Distance of x from the middle between the edges of alternating bands of this period; positive in every
// second one.
float Band(float x, float period) {
  const float phase = x / period - std::floor(x / period);
  return (0.25F - std::abs(phase - 0.5F)) * period;
}

float Soft(float inside, float pixel) { return Coverage(-inside, pixel); }

}  // namespace

SynthClass SynthClassOf(int index) {
  const int round = index / kSynthShapes;
  const int shape = index % kSynthShapes;
  return {.shape = shape, .fill = (shape + round) % kSynthFills, .border = round / kSynthFills};
}

std::string SynthClassName(int index, int classes) {
  const SynthClass c = SynthClassOf(index);
  const size_t digits = std::max<size_t>(2, std::to_string(classes - 1).size());
  std::string name = fmt::format("c{:0{}}-{}-{}", index, digits, kShapes[static_cast<size_t>(c.shape)].name,
                                 kFills[static_cast<size_t>(c.fill)]);
  if (c.border != 0) name += fmt::format("-{}", kBorders[static_cast<size_t>(c.border)]);
  return name;
}

float ShapeDistance(int shape, float x, float y) {
  return kShapes[static_cast<size_t>(shape)].distance(x, y);
}

float Coverage(float distance, float pixel) { return std::clamp(0.5F - distance / pixel, 0.0F, 1.0F); }

float ValueNoise(float x, float y, unsigned variant) {
  const float floor_x = std::floor(x);
  const float floor_y = std::floor(y);
  const int ix = static_cast<int>(floor_x);
  const int iy = static_cast<int>(floor_y);
  const auto ease = [](float t) { return t * t * (3 - 2 * t); };
  const float u = ease(x - floor_x);
  const float v = ease(y - floor_y);
  const float upper = LatticeValue(ix, iy, variant) * (1 - u) + LatticeValue(ix + 1, iy, variant) * u;
  const float lower = LatticeValue(ix, iy + 1, variant) * (1 - u) + LatticeValue(ix + 1, iy + 1, variant) * u;
  return upper * (1 - v) + lower * v;
}

float FillValue(int fill, float x, float y, float pixel, unsigned variant) {
  constexpr float kPeriod = 0.52F;
  const float radius = std::sqrt(x * x + y * y);
  switch (fill) {
    case 1:
      return Soft(Band(x, kPeriod), pixel);
    case 2: {
      const float a = Soft(Band(x, kPeriod * 1.3F), pixel);
      const float b = Soft(Band(y, kPeriod * 1.3F), pixel);
      return a + b - 2 * a * b;
    }
    case 3: {
      const float u = x / kPeriod - std::round(x / kPeriod);
      const float v = y / kPeriod - std::round(y / kPeriod);
      return Coverage(Disc(u, v, 0.36F) * kPeriod, pixel);
    }
    case 4:
      return Soft(Band(radius, kPeriod), pixel);
    case 5: {
      const float line = 0.17F * kPeriod;
      const float a = std::abs(x / kPeriod - std::round(x / kPeriod)) * kPeriod;
      const float b = std::abs(y / kPeriod - std::round(y / kPeriod)) * kPeriod;
      return Coverage(std::min(a, b) - line, pixel);
    }
    case 6: {
      constexpr float kSector = 2 * kPi / 6;
      return Soft(Band(std::atan2(y, x), kSector) * radius, pixel);
    }
    case 7:
      return Soft(Band(x + 0.16F * std::sin(y * 7), kPeriod), pixel);
    case 8: {
      constexpr float kRow = 0.4F;
      const float row = std::floor(y / kRow);
      const float shifted = x / 0.7F + (std::fmod(std::abs(row), 2.0F) == 0 ? 0.0F : 0.5F);
      const float joint_x = std::abs(shifted - std::round(shifted)) * 0.7F;
      const float joint_y = std::abs(y / kRow - std::round(y / kRow)) * kRow;
      return Coverage(std::min(joint_x, joint_y) - 0.055F, pixel);
    }
    case 9:
      return Soft((ValueNoise(x * 4.5F, y * 4.5F, variant) - 0.5F) * 0.25F, pixel);
    default:
      return std::clamp(0.5F + 0.45F * y, 0.0F, 1.0F);  // shaded from one colour to the other
  }
}

float BorderValue(int border, float distance, float x, float y, float pixel) {
  const auto line = [&](float from, float to) {
    return Coverage(std::abs(distance + (from + to) / 2) - (to - from) / 2, pixel);
  };
  switch (border) {
    case 1:
      return line(0, 0.14F);
    case 2:
      return std::max(line(0, 0.08F), line(0.17F, 0.25F));
    case 3:
      return line(0, 0.16F) * Soft(Band(std::atan2(y, x), 2 * kPi / 12) * 0.8F, pixel);
    default:
      return 0;
  }
}

}  // namespace imgd::data
