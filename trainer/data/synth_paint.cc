#include "trainer/data/synth_paint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "trainer/data/random.h"

namespace imgd::data {
namespace {

// Linear in display values, 0 to 1.
struct Colour {
  float r = 0, g = 0, b = 0;
};

Colour Blend(const Colour& a, const Colour& b, float t) {
  return {a.r + (b.r - a.r) * t, a.g + (b.g - a.g) * t, a.b + (b.b - a.b) * t};
}

float Brightness(const Colour& c) { return 0.3F * c.r + 0.59F * c.g + 0.11F * c.b; }

float Draw(Random& random, double low, double high) { return static_cast<float>(random.Uniform(low, high)); }

Colour AnyColour(Random& random) {
  return {Draw(random, 0.04, 0.96), Draw(random, 0.04, 0.96), Draw(random, 0.04, 0.96)};
}

// A colour whose brightness differs from all `others` by at least `gap`, or nearly so.
Colour ContrastingColour(Random& random, std::initializer_list<float> others, float gap) {
  Colour best;
  float best_gap = -1;
  for (int i = 0; i < 24 && best_gap < gap; ++i) {
    const Colour candidate = AnyColour(random);
    float nearest = 1;
    for (const float other : others) nearest = std::min(nearest, std::abs(Brightness(candidate) - other));
    if (nearest > best_gap) {
      best = candidate;
      best_gap = nearest;
    }
  }
  return best;
}

class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), height_(height), pixels_(static_cast<size_t>(width) * static_cast<size_t>(height)) {}
  int width() const { return width_; }
  int height() const { return height_; }
  Colour& at(int x, int y) {
    return pixels_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)];
  }

 private:
  int width_;
  int height_;
  std::vector<Colour> pixels_;
};

// How much longer a shape may become along one axis.
constexpr float kMaxStretch = 1.16F;

// Where a shape lies: local = inverse * (pixel - center), in units of the shape's radius.
struct Placement {
  float center_x, center_y;
  float radius;  // pixels
  std::array<float, 4> inverse;
  float reach;  // pixels around the center that can be covered
};

Placement Place(float center_x, float center_y, float radius, float turn, float squeeze) {
  // Turned, then squeezed along one axis and stretched along the other.
  const float c = std::cos(turn);
  const float s = std::sin(turn);
  return {center_x,
          center_y,
          radius,
          {c / (radius * squeeze), s / (radius * squeeze), -s * squeeze / radius, c * squeeze / radius},
          radius * kShapeExtent * kMaxStretch + 2};
}

// Calls visit(x, y, u, v) for the pixels that a shape may cover, with their local coordinates.
template <typename F>
void ForPixels(Canvas& canvas, const Placement& p, float reach, F visit) {
  const int left = std::max(0, static_cast<int>(p.center_x - reach));
  const int right = std::min(canvas.width(), static_cast<int>(p.center_x + reach) + 1);
  const int top = std::max(0, static_cast<int>(p.center_y - reach));
  const int bottom = std::min(canvas.height(), static_cast<int>(p.center_y + reach) + 1);
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      const float dx = static_cast<float>(x) + 0.5F - p.center_x;
      const float dy = static_cast<float>(y) + 0.5F - p.center_y;
      visit(x, y, p.inverse[0] * dx + p.inverse[1] * dy, p.inverse[2] * dx + p.inverse[3] * dy);
    }
  }
}

// Two colours in blotches; returns their mean brightness.
float PaintGround(Canvas& canvas, Random& random) {
  const Colour a = AnyColour(random);
  const Colour b = Blend(a, AnyColour(random), 0.45F);
  const unsigned variant = random.Next32();
  const float size = static_cast<float>(std::min(canvas.width(), canvas.height()));
  const float coarse = Draw(random, 1.5, 4.0) / size;
  const float fine = coarse * Draw(random, 3.0, 7.0);
  const float share = Draw(random, 0.2, 0.5);
  for (int y = 0; y < canvas.height(); ++y) {
    for (int x = 0; x < canvas.width(); ++x) {
      const auto fx = static_cast<float>(x);
      const auto fy = static_cast<float>(y);
      const float value = (1 - share) * ValueNoise(fx * coarse, fy * coarse, variant) +
                          share * ValueNoise(fx * fine, fy * fine, variant + 1);
      canvas.at(x, y) = Blend(a, b, value);
    }
  }
  return (Brightness(a) + Brightness(b)) / 2;
}

// Small things of any shape and colour, so that no edge or colour by itself means anything.
void PaintClutter(Canvas& canvas, Random& random) {
  const auto width = static_cast<float>(canvas.width());
  const auto height = static_cast<float>(canvas.height());
  const uint32_t count = 3 + random.Below(7);
  for (uint32_t i = 0; i < count; ++i) {
    const int shape = static_cast<int>(random.Below(kSynthShapes));
    const Colour colour = AnyColour(random);
    const Placement p = Place(Draw(random, 0, 1) * width, Draw(random, 0, 1) * height,
                              Draw(random, 0.025, 0.07) * std::min(width, height), Draw(random, 0, 6.2831853),
                              Draw(random, 0.7, 1.4));
    ForPixels(canvas, p, p.reach * 1.4F, [&](int x, int y, float u, float v) {
      const float cover = Coverage(ShapeDistance(shape, u, v), 1 / p.radius);
      if (cover > 0) canvas.at(x, y) = Blend(canvas.at(x, y), colour, cover * 0.85F);
    });
  }
}

void PaintSubject(Canvas& canvas, const SynthClass& what, float ground, Random& random) {
  const auto width = static_cast<float>(canvas.width());
  const auto height = static_cast<float>(canvas.height());
  const float radius = Draw(random, 0.55, 0.90) / 2 * std::min(width, height);
  const auto coordinate = [&](float extent) {
    const float edge = radius * 0.95F;
    return edge + Draw(random, 0, 1) * (extent - 2 * edge);
  };
  const float center_x = coordinate(width);
  const float center_y = coordinate(height);
  const Placement p =
      Place(center_x, center_y, radius, Draw(random, -0.6, 0.6), Draw(random, 1 / kMaxStretch, kMaxStretch));
  const Colour first = ContrastingColour(random, {ground}, 0.22F);
  const Colour second = ContrastingColour(random, {Brightness(first), ground}, 0.20F);
  const Colour border = ContrastingColour(random, {Brightness(first), Brightness(second)}, 0.20F);
  const unsigned variant = random.Next32();
  const float pixel = 1 / radius;

  const float shade = Draw(random, 0.0, 0.45);
  Placement shadow = p;
  shadow.center_x += Draw(random, -0.12, 0.12) * radius;
  shadow.center_y += Draw(random, 0.02, 0.16) * radius;
  ForPixels(canvas, shadow, p.reach * 1.2F, [&](int x, int y, float u, float v) {
    const float cover = Coverage(ShapeDistance(what.shape, u, v), 0.25F);
    if (cover > 0) canvas.at(x, y) = Blend(canvas.at(x, y), Colour{}, cover * shade);
  });
  ForPixels(canvas, p, p.reach, [&](int x, int y, float u, float v) {
    const float distance = ShapeDistance(what.shape, u, v);
    const float cover = Coverage(distance, pixel);
    if (cover <= 0) return;
    Colour colour = Blend(first, second, FillValue(what.fill, u, v, pixel, variant));
    colour = Blend(colour, border, BorderValue(what.border, distance, u, v, pixel));
    canvas.at(x, y) = Blend(canvas.at(x, y), colour, cover);
  });
}

// Light from one side, darker corners, exposure; then the sensor's noise.
std::vector<uint8_t> Expose(Canvas& canvas, const PictureId& id, Random& random) {
  const auto width = static_cast<float>(canvas.width());
  const auto height = static_cast<float>(canvas.height());
  const float exposure = Draw(random, 0.8, 1.15);
  const float slope = Draw(random, 0.0, 0.35);
  const float direction = Draw(random, 0, 6.2831853);
  const float slope_x = slope * std::cos(direction) / width;
  const float slope_y = slope * std::sin(direction) / height;
  const float corners = Draw(random, 0.0, 0.25);
  // Four random bytes have a standard deviation of 147.8.
  const float noise = Draw(random, 0.004, 0.035) / 147.8F;
  Random grain(id.seed, id.split, id.number, Purpose::kSynthNoise);
  const auto to_byte = [](float v) {
    return static_cast<uint8_t>(std::clamp(v, 0.0F, 1.0F) * 255.0F + 0.5F);
  };

  std::vector<uint8_t> out;
  out.reserve(static_cast<size_t>(canvas.width()) * static_cast<size_t>(canvas.height()) * 3);
  for (int y = 0; y < canvas.height(); ++y) {
    for (int x = 0; x < canvas.width(); ++x) {
      const float dx = static_cast<float>(x) - width / 2;
      const float dy = static_cast<float>(y) - height / 2;
      const float off_axis = (dx * dx) / (width * width) + (dy * dy) / (height * height);
      const float light = exposure * (1 + dx * slope_x + dy * slope_y) * (1 - corners * off_axis * 2);
      const uint32_t word = grain.Next32();
      const auto sum = static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
      const float offset = static_cast<float>(sum - 510) * noise;
      const Colour& c = canvas.at(x, y);
      out.push_back(to_byte(c.r * light + offset));
      out.push_back(to_byte(c.g * light + offset));
      out.push_back(to_byte(c.b * light + offset));
    }
  }
  return out;
}

}  // namespace

std::vector<uint8_t> PaintPicture(const SynthClass& what, const PictureId& id, int width, int height) {
  Random random(id.seed, id.split, id.number, Purpose::kSynthesis);
  Canvas canvas(width, height);
  const float ground = PaintGround(canvas, random);
  PaintClutter(canvas, random);
  PaintSubject(canvas, what, ground, random);
  return Expose(canvas, id, random);
}

}  // namespace imgd::data
