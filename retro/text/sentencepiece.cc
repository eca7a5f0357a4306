/* retro/text/sentencepiece.cc: the only C++ file and the only one that includes libsentencepiece.
 * No exception leaves it. */
#include "retro/text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

struct sentencepiece_model {
    sentencepiece::SentencePieceProcessor processor;
};

struct sentencepiece_model *sentencepiece_load(const char *bytes, size_t size,
                                               struct sentencepiece_message *message) try {
    std::unique_ptr<struct sentencepiece_model> s(new struct sentencepiece_model);
    const auto status = s->processor.LoadFromSerializedProto(absl::string_view(bytes, size));
    if (!status.ok()) {
        std::snprintf(message->text, sizeof message->text, "%s", status.ToString().c_str());
        return nullptr;
    }
    for (int i = 0; i < s->processor.GetPieceSize(); i++) {
        if (std::isfinite(s->processor.GetScore(i))) continue;
        std::snprintf(message->text, sizeof message->text,
                      "the score of piece %d is no finite number", i);
        return nullptr;
    }
    return s.release();
} catch (const std::exception &x) {
    std::snprintf(message->text, sizeof message->text, "%s", x.what());
    return nullptr;
}

void sentencepiece_free(struct sentencepiece_model *model) { delete model; }
int sentencepiece_size(const struct sentencepiece_model *model) {
    return model->processor.GetPieceSize();
}
int sentencepiece_bos(const struct sentencepiece_model *model) { return model->processor.bos_id(); }
int sentencepiece_eos(const struct sentencepiece_model *model) { return model->processor.eos_id(); }

const char *sentencepiece_piece(const struct sentencepiece_model *model, int id, size_t *size,
                                enum sentencepiece_kind *kind) {
    const std::string &piece = model->processor.IdToPiece(id);
    *size = piece.size();
    *kind = model->processor.IsControl(id)   ? SENTENCEPIECE_CONTROL
            : model->processor.IsUnknown(id) ? SENTENCEPIECE_UNKNOWN
            : model->processor.IsByte(id)    ? SENTENCEPIECE_BYTE
                                             : SENTENCEPIECE_NORMAL;
    return piece.c_str();
}

char *sentencepiece_unknown_text(const struct sentencepiece_model *model, int id,
                                 size_t *size) try {
    std::string text;
    const auto status = model->processor.Decode(std::vector<int>{id}, &text);
    if (!status.ok()) text.clear();
    char *copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (copy == nullptr) return nullptr;
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *size = text.size();
    return copy;
} catch (const std::exception &) {
    return nullptr;
}

bool sentencepiece_encode(const struct sentencepiece_model *model, const char *text, size_t size,
                          void (*take)(void *context, int id, uint32_t start), void *context,
                          struct sentencepiece_message *message) try {
    sentencepiece::ImmutableSentencePieceText pieces;
    const auto status =
        model->processor.Encode(absl::string_view(text, size), pieces.mutable_proto());
    if (!status.ok()) {
        std::snprintf(message->text, sizeof message->text, "%s", status.ToString().c_str());
        return false;
    }
    const size_t n = pieces.pieces_size();
    for (size_t i = 0; i < n; i++) {
        const auto piece = pieces.pieces(static_cast<int>(i));
        take(context, static_cast<int>(piece.id()), piece.begin());
    }
    return true;
} catch (const std::exception &x) {
    std::snprintf(message->text, sizeof message->text, "%s", x.what());
    return false;
}
