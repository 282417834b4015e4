#include "trainer/input/mix_batch.h"

#include <algorithm>

namespace imgd::trainer {
namespace {

/// A copy on the device that does not wait for it.
at::Tensor ToDevice(const at::Tensor& tensor, at::Device device) {
  return device.is_cuda() ? tensor.pin_memory().to(device, /*non_blocking=*/true) : tensor;
}

/// Bool [N, 1, H, W]: whether a pixel is in its image's box.
at::Tensor InBoxes(const std::vector<data::Crop>& boxes, const at::Tensor& images) {
  const auto n = static_cast<int64_t>(boxes.size());
  auto edges = at::empty({4, n, 1}, at::kInt);
  auto* edge = edges.data_ptr<int>();
  for (int64_t i = 0; i < n; ++i) {
    const data::Crop& box = boxes[static_cast<size_t>(i)];
    edge[i] = box.left;
    edge[n + i] = box.left + box.width;
    edge[2 * n + i] = box.top;
    edge[3 * n + i] = box.top + box.height;
  }
  edges = ToDevice(edges, images.device());
  const auto options = at::dtype(at::kInt).device(images.device());
  const auto x = at::arange(images.size(3), options).unsqueeze(0);
  const auto y = at::arange(images.size(2), options).unsqueeze(0);
  const auto across = x.ge(edges[0]).logical_and_(x.lt(edges[1]));
  const auto down = y.ge(edges[2]).logical_and_(y.lt(edges[3]));
  return across.unsqueeze(1).logical_and(down.unsqueeze(2)).unsqueeze(1);
}

/// Where the image at each position of the step lies in the batch.
int64_t IndexOf(const data::Batch& batch, uint32_t position) {
  const auto found = std::ranges::lower_bound(batch.positions, position);
  return found != batch.positions.end() && *found == position ? found - batch.positions.begin() : -1;
}

void MixPairs(const data::Batch& batch, const data::MixOptions& options, uint64_t seed, DeviceBatch& out) {
  const int64_t n = batch.count();
  std::vector<data::Crop> boxes(static_cast<size_t>(n));
  auto partners = at::arange(n, at::kLong);
  auto inside = at::ones({n, 1, 1, 1}, at::kFloat);
  auto own = at::ones({n}, at::kFloat);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t position = batch.positions[static_cast<size_t>(i)];
    const int64_t partner = IndexOf(batch, data::MixPartner(position));
    if (partner < 0) continue;
    const data::Mix mix = data::MixOf(options, seed, batch.step, position, batch.width, batch.height);
    partners.data_ptr<int64_t>()[i] = partner;
    inside.data_ptr<float>()[i] = static_cast<float>(mix.inside);
    own.data_ptr<float>()[i] = static_cast<float>(mix.own);
    boxes[static_cast<size_t>(i)] = mix.box;
  }
  partners = ToDevice(partners, out.images.device());
  inside = ToDevice(inside, out.images.device());
  const auto others = out.images.index_select(0, partners);
  const auto mixed = out.images * inside + others * (1 - inside);
  out.images = at::where(InBoxes(boxes, out.images), mixed, out.images);
  out.partner_labels = out.labels.index_select(0, partners);
  out.own_weights = ToDevice(own, out.images.device());
}

}  // namespace

void EraseAndMix(const data::Batch& batch, const data::MixOptions& mix, uint64_t seed, DeviceBatch& out) {
  if (!batch.erased.empty()) out.images.masked_fill_(InBoxes(batch.erased, out.images), 0);
  if (mix.on()) MixPairs(batch, mix, seed, out);
  if (batch.own_count() == batch.count()) return;
  const auto own = [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.narrow(0, batch.own.first, batch.own_count());
  };
  own(out.images);
  own(out.labels);
  own(out.partner_labels);
  own(out.own_weights);
}

}  // namespace imgd::trainer
