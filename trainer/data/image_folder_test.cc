#include "trainer/data/image_folder.h"

#include <gmock/gmock.h>

#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const ImageFolder& set) {
  std::vector<std::string> names;
  for (size_t i = 0; i < set.size(); ++i) names.push_back(set.name(i));
  return names;
}

TEST(ImageFolder, ListsClassesAndImagesInTorchvisionsOrder) {
  const TempFolder root;
  root.Write("dog/b.JPEG", "");
  root.Write("dog/a.jpg", "");
  root.Write("dog/x/y.jpeg", "");
  root.Write("dog/x/z/1.jpg", "");
  root.Write("dog/x-1/1.jpg", "");
  root.Write("dog/notes.txt", "");
  root.Write("cat/1.JPG", "");
  root.Write("cat/2.Png", "");
  root.Write("cat/.hidden.jpg", "");
  root.Write(".cache/1.jpg", "");
  root.Write("readme.txt", "");
  const auto set = ImageFolder::Open(root.path()).value();
  EXPECT_THAT(set.classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(Names(set), ElementsAre("cat/1.JPG", "cat/2.Png", "dog/a.jpg", "dog/b.JPEG", "dog/x/y.jpeg",
                                      "dog/x-1/1.jpg", "dog/x/z/1.jpg"));
  EXPECT_EQ(set.label(0), 0);
  EXPECT_EQ(set.label(6), 1);
  EXPECT_EQ(set.path(0), root.path() / "cat/1.JPG");
}

TEST(ImageFolder, FollowsLinksToFolders) {
  const TempFolder real;
  real.Write("1.jpg", "");
  const TempFolder root;
  std::filesystem::create_directory_symlink(real.path(), root.path() / "cat");
  EXPECT_EQ(ImageFolder::Open(root.path()).value().size(), 1U);
}

TEST(ImageFolder, ALinkThatLeadsBackUpIsAnError) {
  const TempFolder root;
  root.Write("cat/1.jpg", "");
  std::filesystem::create_directory_symlink(root.path() / "cat", root.path() / "cat/again");
  EXPECT_THAT(ImageFolder::Open(root.path()).error().message, HasSubstr("does a link lead back up?"));
}

TEST(ImageFolder, SaysWhatIsThereWhenItIsNoDataSet) {
  const TempFolder root;
  const auto missing = ImageFolder::Open(root.path() / "none");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("no folder "), HasSubstr("none")));

  const auto file = root.Write("a.jpg", "");
  EXPECT_THAT(ImageFolder::Open(file).error().message, HasSubstr("is a file, not a folder"));

  root.Write("b.txt", "");
  const auto flat = ImageFolder::Open(root.path());
  EXPECT_EQ(flat.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(flat.error().message, HasSubstr("no class folder, only 1 images and 1 other files"));

  root.Write("dog/1.gif", "");
  root.Write("cat/1.gif", "");
  EXPECT_THAT(ImageFolder::Open(root.path()).error().message,
              HasSubstr("2 class folders with 2 other files, but none ends in .jpg, .jpeg or .png"));

  root.Write("dog/1.jpg", "");
  EXPECT_THAT(
      ImageFolder::Open(root.path()).error().message,
      AllOf(HasSubstr("1 of the 2 class folders"), HasSubstr("have no image (.jpg, .jpeg, .png): cat")));
}

TEST(ImageFolderNotes, ImagesInOtherFormsAreCounted) {
  const TempFolder folder;
  for (const char* name : {"a/1.jpg", "a/3.WebP", "a/2.webp", "b/1.PNG", "b/note.txt"})
    folder.Write(name, "x");
  EXPECT_THAT(
      ImageFolder::Open(folder.path())->notes(),
      testing::ElementsAre(fmt::format("left out, since only JPEG and PNG are read: 2 images, the first {}",
                                       (folder.path() / "a/2.webp").string())));
}

}  // namespace
}  // namespace imgd::data
