#include "cli/commands.h"
#include "cli/job_ref.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

int DeleteOne(Context& context, Client& client, const std::string& reference) {
  auto id = FindJob(client, reference);
  if (!id) return context.Fail(id.error());
  v1::DeleteJobRequest request;
  request.set_id(*id);
  request.set_actor(OwnerName(context.env()));
  auto answer = client.DeleteJob(request);
  if (!answer) return context.Fail(answer.error());
  context.out() << fmt::format("job {} is deleted\n", *id);
  return 0;
}

int RunDelete(Context& context, const std::vector<std::string>& jobs) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  int exit_code = 0;
  for (const auto& reference : jobs) {
    const int code = DeleteOne(context, **client, reference);
    if (exit_code == 0) exit_code = code;
  }
  return exit_code;
}

}  // namespace

void AddDeleteCommand(Command app, Context& context) {
  auto jobs = std::make_shared<std::vector<std::string>>();
  Command command = app.AddSubcommand("delete", "Remove ended jobs and all that is kept of them");
  command.AddOption("JOB", *jobs, "Numbers of the jobs, or their names").Required().ValueName("");
  command.Footer(
      "A job's file, history, figures and log are gone for good. Its checkpoints are files of their own and "
      "stay:\n"
      "imgcli checkpoints JOB says where, before.\n\n"
      "Examples:\n"
      "  imgcli delete 12\n"
      "  imgcli delete 13 14 15");
  command.Runs([&context, jobs] { return RunDelete(context, *jobs); });
}

}  // namespace imgd::cli
