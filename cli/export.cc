#include "cli/checkpoint_ref.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/weights.h"

namespace imgd::cli {
namespace {

struct ExportOptions {
  std::string reference;
  std::string form;
  std::string file;
  std::string which;
  WhichWeights weights;
};

int RunExport(Context& context, const ExportOptions& options) {
  const std::string reference =
      options.which.empty() ? options.reference : options.reference + ":" + options.which;
  const auto found = FindCheckpoint(context, reference);
  if (!found) return context.Fail(found.error());
  const auto weights = ReadWeights(*found->folder.store, found->summary, options.weights);
  if (!weights) return context.Fail({weights.error()});
  const auto written = options.form == "torch" ? WriteTorch(**weights, options.file)
                                               : WriteSafetensors(**weights, options.file);
  if (!written) return context.Fail({written.error()});
  std::error_code ignored;
  context.out() << fmt::format(
      "{}: {}{} of {}, {}\n", Printable(options.file), (*weights)->average ? "averaged weights, " : "",
      Count((*weights)->content.tensors.size(), "tensor"), Printable(found->summary.ref.path.native()),
      HumanBytes(std::filesystem::file_size(options.file, ignored)));
  return 0;
}

}  // namespace

void AddExportCommand(Command app, Context& context) {
  auto options = std::make_shared<ExportOptions>();
  Command command =
      app.AddSubcommand("export", "Write a checkpoint's weights for Python, torchvision and timm");
  command.AddOption("CKPT", options->reference, kCheckpointHelp).Required().ValueName("");
  command
      .AddOption("--to", options->form, "safetensors, or torch for what torch.load(weights_only=True) reads")
      .Required()
      .ValueName("FORM")
      .OneOf({"safetensors", "torch"});
  command.AddOption("-o,--output", options->file, "The file, which is replaced whole")
      .Required()
      .ValueName("FILE");
  command.AddOption("--checkpoint", options->which, "Which one: a step, best or latest, as after JOB:")
      .ValueName("WHICH");
  AddWhichWeights(command, options->weights);
  command.Footer(
      "Names are torchvision's (timm's for what it lacks): load_state_dict(strict=True) takes them. Where\n"
      "the weights come from is inside: as metadata \"lineage\" or, in a torch file, as lineage.json.\n\n"
      "Examples:\n"
      "  imgcli export rn50 --to safetensors -o rn50.safetensors --checkpoint best\n"
      "  imgcli export /ckpt/rn50-a1b2-12/g1/step500 --to torch -o rn50.pth --no-ema");
  command.Runs([&context, options] { return RunExport(context, *options); });
}

}  // namespace imgd::cli
