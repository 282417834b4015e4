#include "cli/dataset_convert.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>

#include "cli/commands.h"
#include "cli/dataset_facts.h"
#include "cli/dataset_look.h"
#include "cli/format.h"
#include "cli/job_report.h"
#include "cli/progress_line.h"
#include "trainer/data/convert.h"
#include "trainer/data/convert_source.h"
#include "trainer/data/output_folder.h"
#include "trainer/data/subset.h"

namespace imgd::cli {
namespace {

using data::OutputForm;

constexpr size_t kNamesPrinted = 5;

// What the words of the command line say, before they are looked at together.
struct ConvertArguments {
  std::string source;
  std::string out;
  std::string from = "auto";
  std::string to = "webdataset";
  std::string name;
  std::string shard_size;
  std::optional<std::string> classes;
  std::string devkit;
  std::vector<std::string> boxes;
  std::string index;
  std::optional<uint64_t> shards;
  std::optional<uint64_t> seed;
  std::optional<int> jobs;
  std::optional<int> resize;
  std::optional<int> quality;
  std::optional<int> label_offset;
  bool no_repair = false;
  bool strict = false;
  bool verify = false;
};

/// "256MB", "1GiB", "4096": decimal and binary units.
Result<uint64_t> ParseBytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"kB", 1'000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"KiB", 1ULL << 10},
                                    {"MiB", 1ULL << 20},
                                    {"GiB", 1ULL << 30}};
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(parsed.ptr, static_cast<size_t>(text.data() + text.size() - parsed.ptr));
  for (const auto& known : kUnits) {
    if (parsed.ec != std::errc() || unit != known.name || number == 0) continue;
    if (number <= std::numeric_limits<uint64_t>::max() / known.bytes) return number * known.bytes;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--shard-size: found '{}' where a size such as 256MB or 1GiB is expected", text);
}

template <typename Form>
std::optional<Form> FormNamed(const std::string& name, std::initializer_list<Form> forms) {
  for (const Form form : forms) {
    if (NameOf(form) == name) return form;
  }
  return std::nullopt;
}

OutputForm ToForm(const std::string& name) {
  return FormNamed(name, {OutputForm::kWebDataset, OutputForm::kTfRecord, OutputForm::kRecordIo,
                          OutputForm::kImageFolder})
      .value_or(OutputForm::kWebDataset);
}

std::optional<data::SourceForm> FromForm(const std::string& name) {
  using data::SourceForm;
  return FormNamed(name, {SourceForm::kIlsvrc2012, SourceForm::kImageFolder, SourceForm::kWebDataset,
                          SourceForm::kTfRecord, SourceForm::kRecordIo});
}

/// An option that would do nothing in this form is a mistake to be told.
Status CheckFits(const ConvertArguments& arguments, OutputForm form) {
  struct Rule {
    bool given;
    const char* option;
    bool fits;
  };
  const bool folder = form == OutputForm::kImageFolder;
  const bool records = form == OutputForm::kTfRecord;
  const Rule rules[] = {{!arguments.name.empty(), "--name", !folder},
                        {arguments.shards.has_value(), "--shards", !folder},
                        {!arguments.shard_size.empty(), "--shard-size", !folder},
                        {arguments.seed.has_value(), "--seed", !folder},
                        {arguments.label_offset.has_value(), "--label-offset", records},
                        {!arguments.boxes.empty(), "--boxes", records},
                        {!arguments.index.empty(), "--index", !folder && !records}};
  for (const auto& rule : rules) {
    if (rule.given && !rule.fits) {
      return Fail(ErrorCode::kInvalidArgument, "{} has no effect with --to {}", rule.option, NameOf(form));
    }
  }
  if (arguments.shards && !arguments.shard_size.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "--shards and --shard-size exclude each other");
  }
  if (arguments.index == "restart" && form != OutputForm::kWebDataset) {
    return Fail(ErrorCode::kInvalidArgument, "--index restart has no effect with --to {}", NameOf(form));
  }
  if (arguments.resize && arguments.no_repair) {
    return Fail(ErrorCode::kInvalidArgument,
                "--resize codes images anew, which repairs them: --no-repair excludes it");
  }
  if (arguments.quality && arguments.no_repair) {
    return Fail(ErrorCode::kInvalidArgument, "--quality has no effect where nothing is coded anew");
  }
  return {};
}

Result<data::ConvertOptions> OptionsOf(const ConvertArguments& arguments) {
  const OutputForm form = ToForm(arguments.to);
  IMGD_TRY(CheckFits(arguments, form));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  data::ConvertOptions options{.shards = arguments.shards.value_or(0),
                               .seed = arguments.seed.value_or(0),
                               .jobs = arguments.jobs.value_or(cores),
                               .form = form,
                               .images = {.resize = arguments.resize.value_or(0),
                                          .repair = !arguments.no_repair,
                                          .restart = arguments.index == "restart"},
                               .first_label = arguments.label_offset.value_or(1),
                               .index = arguments.index != "none",
                               .strict = arguments.strict};
  if (arguments.quality) options.images.quality = *arguments.quality;
  if (!arguments.shard_size.empty()) {
    IMGD_ASSIGN(options.shard_bytes, ParseBytes(arguments.shard_size));
  }
  return options;
}

/// What the shards of a part are called.
std::string SetName(const ConvertArguments& arguments, const std::string& part, OutputForm form) {
  if (part.empty()) return arguments.name.empty() ? "train" : arguments.name;
  if (!arguments.name.empty()) return arguments.name + "-" + part;
  return form == OutputForm::kTfRecord && part == "val" ? "validation" : part;
}

void PrintEntry(Context& context, const std::string& title, const data::ConvertReport::Entry& entry) {
  if (entry.count == 0) return;
  context.out() << fmt::format("  {}: {}\n", title, entry.count);
  for (size_t i = 0; i < std::min(entry.names.size(), kNamesPrinted); ++i) {
    context.out() << fmt::format("    {}\n", Printable(entry.names[i]));
  }
  if (entry.count > kNamesPrinted)
    context.out() << fmt::format("    and {} more\n", entry.count - kNamesPrinted);
}

void PrintResult(Context& context, const std::string& out, const data::ConvertOptions& options,
                 const data::ConvertResult& result) {
  const bool folder = options.form == OutputForm::kImageFolder;
  context.out() << fmt::format("{}: {}{}, {}{}\n", Printable(out), Count(result.images, "image"),
                               folder ? "" : " in " + Count(result.shards, "shard"), HumanBytes(result.bytes),
                               result.was_there ? ", was there already" : "");
  if (result.kept > 0 && !result.was_there) {
    context.out() << fmt::format("  {} of {} {} were there already\n", result.kept, result.shards,
                                 folder ? "blocks of files" : "shards");
  }
  const auto& report = result.report;
  if (report.resized > 0) {
    context.out() << fmt::format("  made smaller (short side {} pixels): {}\n", options.images.resize,
                                 report.resized);
  }
  if (options.images.restart) {
    context.out() << fmt::format("  with restart markers: {} of {}\n", report.marked, result.images);
  }
  for (const auto& [kind, entry] : report.repaired) PrintEntry(context, "repaired, " + kind, entry);
  for (const auto& [kind, entry] : report.left_out) PrintEntry(context, "left out, " + kind, entry);
  for (const auto& [kind, entry] : report.as_is) PrintEntry(context, "taken as it is, " + kind, entry);
  for (const auto& [kind, entry] : report.renamed) PrintEntry(context, "renamed, " + kind, entry);
  for (const auto& remark : result.remarks) context.out() << "  " << remark << '\n';
  PrintEntry(context, "checksums of the source that are wrong", report.checksums);
  if (report.checksums.count > 0) {
    context.Warn(fmt::format("{} of the source's checksums are wrong; see {}/{}", report.checksums.count,
                             Printable(out), data::kReportName));
  }
}

/// Opening a large set takes a while, and nothing is written yet: a signal may just end the process.
Result<std::unique_ptr<data::Dataset>> OpenUnlessInterrupted(Context& context,
                                                             const data::ConvertSource& source,
                                                             const data::SourcePart& part,
                                                             const data::SourceExtras& extras,
                                                             const std::vector<std::string>* classes) {
  const Interrupt::Scope scope(context.interrupt(), [&context] { ::_exit(context.interrupt().ExitCode()); });
  auto set = data::OpenPart(source, part, extras, classes);
  if (set) {
    for (const auto& note : (*set)->notes()) context.Warn(Printable(note));
  }
  return set;
}

/// A part of the source and where it goes.
struct PartToWrite {
  std::string name;  ///< empty where it is the only one
  std::string out;
  std::unique_ptr<data::Dataset> set;
  data::ConvertOptions options;
  std::unique_ptr<data::Conversion> conversion;
};

/// Opens and looks at all parts, so that what is wrong with the last is known before the first is written.
Result<std::vector<PartToWrite>> PrepareParts(Context& context, const ConvertArguments& arguments,
                                              const data::ConvertSource& source,
                                              const data::ConvertOptions& options) {
  data::SourceExtras extras{.devkit = arguments.devkit};
  if (arguments.classes) {
    IMGD_ASSIGN(extras.classes, data::ParseClasses(*arguments.classes));
  }
  IMGD_TRY(data::CheckOutside(arguments.source, arguments.out));
  const bool several = source.parts.size() > 1;
  std::vector<PartToWrite> parts;
  std::vector<data::OutputFolder> folders;
  for (const auto& part : source.parts) {
    parts.push_back({.name = several ? part.name : "",
                     .out = several ? arguments.out + "/" + part.name : arguments.out,
                     .options = options});
    parts.back().options.name = SetName(arguments, several ? part.name : "", options.form);
    IMGD_ASSIGN(auto folder, data::OutputFolder::Lock(parts.back().out));
    folders.push_back(std::move(folder));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* classes = i == 0 ? nullptr : &parts[0].set->classes();
    IMGD_ASSIGN(parts[i].set, OpenUnlessInterrupted(context, source, source.parts[i], extras, classes));
  }
  data::Boxes boxes;
  if (!arguments.boxes.empty()) {
    IMGD_ASSIGN(boxes, data::OpenBoxes(arguments.boxes, parts[0].set->classes()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].options.boxes = boxes.of;
    parts[i].options.boxes_id = boxes.id;
    IMGD_ASSIGN(parts[i].conversion,
                data::Conversion::Prepare(
                    *parts[i].set, parts[i].options, std::move(folders[i]),
                    [&](const data::ConvertState&) { return !context.interrupt().Triggered(); }));
  }
  return parts;
}

int Failed(Context& context, const Error& error) {
  // Context::Fail is silent after Ctrl-C.
  if (context.interrupt().Triggered()) context.Say(error.message);
  return context.Fail({error});
}

Result<data::ConvertResult> WritePart(Context& context, const PartToWrite& part, JobReport& job) {
  ProgressLine line(context, "writing");
  v1::DatasetProgress told;
  told.set_part(part.name);
  auto result = part.conversion->Run([&](const data::ConvertState& state) {
    line.Start(state.doing);
    line.Show(state.done, state.total, state.bytes, state.skipped);
    told.set_doing(state.doing);
    told.set_done(state.done);
    told.set_total(state.total);
    told.set_shards_done(state.shards_done);
    told.set_shards(state.shards);
    told.set_bytes(state.bytes);
    job.Progress(told);
    return !context.interrupt().Triggered();
  });
  line.End();
  return result;
}

/// Reads back what was written; the images were decoded before.
Result<v1::DatasetVerification> VerifyParts(Context& context, const std::vector<PartToWrite>& parts,
                                            JobReport& job) {
  v1::DatasetVerification out;
  for (const auto& part : parts) {
    v1::DatasetProgress told;
    told.set_part(part.name);
    told.set_doing("verifying");
    IMGD_ASSIGN(const auto report,
                VerifyPart(context, part.out, {.where = part.out, .jobs = part.options.jobs},
                           [&](data::VerifyPhase, uint64_t done, uint64_t total) {
                             told.set_done(done);
                             told.set_total(total);
                             job.Progress(told);
                             return true;
                           }));
    PrintReport(context, part.out, false, report);
    AddVerified(report, out);
  }
  return out;
}

/// What imgd keeps of the set where it has a name for it.
Result<v1::DatasetContents> DescribeParts(const std::vector<PartToWrite>& parts,
                                          const std::vector<data::ConvertReport>& reports) {
  std::vector<PlacedPart> placed;
  for (const auto& part : parts) placed.push_back({part.name, part.out});
  IMGD_ASSIGN(auto contents, ContentsOf(placed));
  for (const auto& report : reports) AddLeftOut(report, contents);
  return contents;
}

int Convert(Context& context, const ConvertArguments& arguments) {
  // Ctrl-C ends the writing between two images; finished shards stay, and the same command goes on with the
  // rest.
  context.FollowUntilInterrupted();
  const auto options = OptionsOf(arguments);
  if (!options) return context.Fail({options.error()});
  const auto source = data::FindSource(arguments.source, FromForm(arguments.from));
  if (!source) return context.Fail({source.error()});
  if (!arguments.devkit.empty() && source->form != data::SourceForm::kIlsvrc2012) {
    return context.Fail({Error{.code = ErrorCode::kInvalidArgument,
                               .message = "--devkit has an effect with ilsvrc2012 only"}});
  }
  const auto parts = PrepareParts(context, arguments, *source, *options);
  if (!parts) return Failed(context, parts.error());
  JobReport job(context.env());
  std::vector<data::ConvertReport> reports;
  for (const auto& part : *parts) {
    const auto result = WritePart(context, part, job);
    if (!result) return Failed(context, result.error());
    PrintResult(context, part.out, part.options, *result);
    reports.push_back(result->report);
  }
  v1::DatasetFacts facts;
  if (arguments.verify) {
    auto verification = VerifyParts(context, *parts, job);
    if (!verification) return Failed(context, verification.error());
    *facts.mutable_verification() = std::move(*verification);
  }
  if (job.IsOn()) {
    auto contents = DescribeParts(*parts, reports);
    if (!contents) return Failed(context, contents.error());
    *facts.mutable_contents() = std::move(*contents);
    job.Facts(facts);
  }
  return facts.verification().broken() == 0 ? 0 : kBrokenExit;
}

void AddFormOptions(Command command, ConvertArguments& arguments) {
  command
      .AddOption("--from", arguments.from,
                 "Form of SRC: auto (default), ilsvrc2012, imagefolder, webdataset, tfrecord, recordio")
      .OneOf({"auto", "ilsvrc2012", "imagefolder", "webdataset", "tfrecord", "recordio"})
      .ValueName("FORM");
  command
      .AddOption("--to", arguments.to, "Form of OUT: webdataset (default), tfrecord, recordio, imagefolder")
      .OneOf({"webdataset", "tfrecord", "recordio", "imagefolder"})
      .ValueName("FORM");
  command.AddOption("--name", arguments.name, "Of the set: NAME-000000.tar and so on (default train)")
      .ValueName("NAME");
  command.AddOption("--shard-size", arguments.shard_size, "About how large a shard is (default 256MiB)")
      .ValueName("SIZE");
  command
      .AddOption("--index", arguments.index,
                 "Our index beside each shard: none, plain (default), restart (and restart markers in it)")
      .OneOf({"none", "plain", "restart"})
      .ValueName("KIND");
  command
      .AddOption("--devkit", arguments.devkit, "ILSVRC2012's development kit (default: beside the archives)")
      .ValueName("FILE");
  command
      .AddOption("--boxes", arguments.boxes,
                 "Archive of bounding boxes for the TFRecords; more than once for several")
      .OneValueEach()
      .ValueName("FILE");
  const auto take_classes = [&arguments](const std::string& text) -> Status {
    arguments.classes = text;  // also an empty one, which is an error
    return {};
  };
  command.AddOption("--classes", take_classes, "Only these: a,b,c, or a file with one on each line")
      .ValueName("LIST");
  command.AddFlag("--no-repair", arguments.no_repair, "Take every file as it is, also broken ones");
  command.AddFlag("--strict", arguments.strict,
                  "Fail where an image would be left out or a checksum is wrong");
  command.AddFlag("--verify", arguments.verify, "Read back what was written, as dataset verify does");
}

}  // namespace

void AddConvert(Command dataset, Context& context) {
  auto arguments = std::make_shared<ConvertArguments>();
  Command command =
      dataset.AddSubcommand("convert", "Write a data set in another form: shards or an ImageFolder");
  command
      .AddOption("SRC", arguments->source,
                 "Folder, shard, pattern of shards, or a folder with train/ and val/")
      .Required()
      .ValueName("");
  command.AddOption("OUT", arguments->out, "New folder; gets train/ and val/ where SRC holds both")
      .Required()
      .ValueName("");
  AddFormOptions(command, *arguments);
  command.AddNumber("--shards", "How many shards (default by --shard-size)", 1, 1'000'000,
                    [arguments](uint64_t shards) { arguments->shards = shards; });
  command.AddNumber("--seed", "Of the order in which images are put into shards (default 0)", 0, UINT64_MAX,
                    [arguments](uint64_t seed) { arguments->seed = seed; });
  const auto number = [&](const char* name, const char* help, uint64_t least, uint64_t most, auto& target) {
    command.AddNumber(name, help, least, most,
                      [arguments, &target](uint64_t value) { target = static_cast<int>(value); });
  };
  number("--jobs", "Threads that write (default one for each core)", 1, 1024, arguments->jobs);
  number("--resize", "Short side in pixels of larger images; the others stay as they are", 1, 65'500,
         arguments->resize);
  number("--quality", "JPEG quality of what is coded anew, 1 to 100 (default 90)", 1, 100,
         arguments->quality);
  number("--label-offset", "TFRecord: label of the first class, 0 or 1 (default 1, as ImageNet's)", 0, 1,
         arguments->label_offset);
  command.Footer(
      "Files that need no repair are taken bit for bit; CMYK JPEGs and PNGs become RGB JPEGs, and what\n"
      "doesn't decode is left out; OUT/report.json says which. The same set and options give the same\n"
      "bytes at any --jobs. After Ctrl-C the same command goes on where it stopped; what is finished is\n"
      "left as it is.\n\n"
      "Examples:\n"
      "  imgcli dataset convert /data/imagenet /data/shards\n"
      "  imgcli dataset convert --resize 256 --name imagenet-train /data/imagenet/train /data/shards256\n"
      "  imgcli dataset convert --from tfrecord --to imagefolder '/data/tf/train-*' /data/train\n"
      "  imgcli dataset convert --to recordio --shards 1 /data/shards/val /data/rec");
  command.Runs([&context, arguments] { return Convert(context, *arguments); });
}

}  // namespace imgd::cli
