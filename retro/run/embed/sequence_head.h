/* retro/run/embed/sequence_head.h: what Hugging Face's ...ForSequenceClassification puts behind an
 * encoder: a dense layer over the first row, and a classifier. With one label such a model is a
 * cross-encoder: it reads a query and a text together and says how well they fit (Nogueira and Cho
 * 2019). */
#pragma once

#include "retro/run/embed/encoder_folder.h"

/* Fills in the modes and modules of *folder for the head of the model in folder->model, whose rows
 * have `hidden` numbers. One number comes out, the logit. STATUS_UNSUPPORTED where there is no head
 * that we know, or it has more than one label.
 */
enum status sequence_head_read(struct encoder_folder *folder, int hidden, struct error *e);
/* The same for a decoder that answers a question by "yes" or "no", whose ids these are: out comes
 * the logit of the one less that of the other, behind the last row. With the head of a
 * ...ForSequenceClassification that head counts. */
enum status sequence_head_read_answer(struct encoder_folder *folder, int hidden, int yes, int no,
                                      struct error *e);
/* STATUS_UNSUPPORTED where the folder has such a head: its rows were never made to be compared. */
enum status sequence_head_refuse(const char *folder, struct error *e);
