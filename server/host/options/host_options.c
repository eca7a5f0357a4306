/* server/host/options/host_options.c: rows of what the host opens. See host_options.h. */
#include "server/host/options/host_options.h"

#include "kernels/comm/comm.h"
#include "retrieval/kept/kept_file.h"
#include "retrieval/milvus/client/milvus.h"
#include "retro/model/grid.h"
#include "retro/model/model.h"

static const struct json_choice dtypes[] = {{"auto", MODEL_DTYPE_AUTO}, {"f32", MODEL_DTYPE_F32},
                                            {"f16", MODEL_DTYPE_F16},   {"bf16", MODEL_DTYPE_BF16},
                                            {"fp8", MODEL_DTYPE_FP8},   {NULL, 0}};
static const struct json_choice cache_dtypes[] = {
    {"auto", MODEL_DTYPE_AUTO}, {"f32", MODEL_DTYPE_F32},   {"f16", MODEL_DTYPE_F16},
    {"bf16", MODEL_DTYPE_BF16}, {"int8", MODEL_DTYPE_INT8}, {NULL, 0}};
static const struct json_choice comms[] = {{"auto", COMM_AUTO},
                                           {"single", COMM_SINGLE},
                                           {"threads", COMM_THREADS},
                                           {"mpi", COMM_MPI},
                                           {"sockets", COMM_SOCKETS},
                                           {"nccl", COMM_NCCL},
                                           {NULL, 0}};
static const struct json_choice grids[] = {{"end", GRID_END}, {"start", GRID_START}, {NULL, 0}};

/* Types that weights are converted to before they are served. */
static const struct option_hint dtype_hints[] = {
    {"int8",
     "make such weights by retro-convert MODEL_DIR OUT_DIR --to int8, and keep model.dtype auto"},
    {"int4",
     "make such weights by retro-convert MODEL_DIR OUT_DIR --to int4, and keep model.dtype auto"},
    {NULL, NULL}};

static const struct json_choice roles[] = {
    {"decoder", ROLE_DECODER}, {"embedder", ROLE_EMBEDDER}, {NULL, 0}};
static const struct json_field other_fields[] = {
    {"path", JSON_TEXT, JSON_AT(struct other_model, path), .required = true},
    {"name", JSON_TEXT, JSON_AT(struct other_model, name), .text = ""},
    {"role", JSON_CHOICE, JSON_AT(struct other_model, role), .choices = roles},
};
static const struct json_table other_table = JSON_TABLE(other_fields);
static const struct json_field other_item = {"other", JSON_STRUCT, .table = &other_table};

static const struct option_row model_rows[] = {
    OPTION_PATH(struct model_settings, path,
                "folder with config.json, safetensors and tokenizer, or a .gguf file; its tower, "
                "*mmproj*.gguf, is found beside it"),
    OPTION_TEXT(struct model_settings, name, "",
                "the id that /v1/models shows; empty: the folder's name"),
    OPTION_TEXT(struct model_settings, device, "cpu",
                "where the model runs: cpu, cuda:N in a build with CUDA, or auto: the first GPU if "
                "there is one, else cpu"),
    OPTION_CHOICE(struct model_settings, dtype, MODEL_DTYPE_AUTO, dtypes,
                  "type the weights are kept in; auto: as stored; fp8: on GPUs",
                  .hints = dtype_hints),
    OPTION_CHOICE(
        struct model_settings, cache_dtype, MODEL_DTYPE_AUTO, cache_dtypes,
        "type of keys and values in memory; auto: f32 beside f32 weights, else f16; int8: "
        "half of f16's memory, on the CPU"),
    OPTION_BOOL(struct model_settings, sampling_defaults, true,
                "requests that do not say get temperature, top_p, min_p, top_k, repetition_penalty "
                "and no_repeat_ngram_size of "
                "generation_config.json"),
    OPTION_INT(struct model_settings, threads, 0, 0, 1024,
               "CPU threads of the engine; 0: as many as the process may use"),
    OPTION_STRUCTS(struct model_settings, others, &other_item, sizeof(struct other_model), true,
                   "further models that requests may name, each {\"path\", \"name\", \"role\"}: "
                   "role is decoder or "
                   "embedder"),
};
const struct option_section model_section = {"model", model_rows, (int)ARRAY_COUNT(model_rows)};

static const struct option_row parallel_rows[] = {
    OPTION_INT(struct parallel_settings, tensor, 1, 1, 64,
               "ranks that share every layer: its heads, its MLP and the vocabulary"),
    OPTION_INT(struct parallel_settings, pipeline, 1, 1, 64,
               "stages that the layers are cut into, each of parallel.tensor ranks"),
    OPTION_INT(struct parallel_settings, micro_batch_rows, 0, 0, 1 << 20,
               "rows of a step above which stages work on its sequences in turn, so many rows at "
               "once; 0: never"),
    OPTION_CHOICE(struct parallel_settings, comm, COMM_AUTO, comms,
                  "what ranks are: threads, processes of mpirun or joined by sockets, GPUs with "
                  "nccl; auto: what there is"),
    OPTION_INT(struct parallel_settings, timeout, 60, 1, 86400,
               "seconds that a rank waits for another to start, to come further in loading, and "
               "within a step"),
    OPTION_TEXT(struct parallel_settings, rendezvous, "",
                "host:port at which rank 0 listens for the others, where ranks are started one by "
                "one; rank k listens "
                "at the port plus k; empty: they are not"),
    OPTION_PATH(struct parallel_settings, secret_file,
                "with parallel.rendezvous: file with a secret that is the same for all ranks; "
                "needed between machines"),
    OPTION_INT(struct parallel_settings, rank, 0, 0, 63,
               "with parallel.rendezvous: which rank this process is"),
    OPTION_TEXT(struct parallel_settings, host, "",
                "with parallel.rendezvous: the address at which other ranks reach this one; empty: "
                "the one with which it "
                "reaches rank 0, for rank 0 that of parallel.rendezvous"),
};
const struct option_section parallel_section = {"parallel", parallel_rows,
                                                (int)ARRAY_COUNT(parallel_rows)};

static const struct json_choice documents_accesses[] = {{"off", DOCUMENTS_OFF},
                                                        {"read", DOCUMENTS_READ},
                                                        {"write", DOCUMENTS_WRITE},
                                                        {"auto", DOCUMENTS_AUTO},
                                                        {NULL, 0}};

static const struct json_choice milvus_consistencies[] = {{"strong", MILVUS_STRONG},
                                                          {"session", MILVUS_SESSION},
                                                          {"bounded", MILVUS_BOUNDED},
                                                          {"eventually", MILVUS_EVENTUALLY},
                                                          {NULL, 0}};
static const struct json_choice aways[] = {
    {"fail", AWAY_FAIL}, {"write_without", AWAY_WRITE_WITHOUT}, {NULL, 0}};

static const struct json_choice keeps[] = {
    {"off", KEEP_OFF}, {"path", KEEP_PATH}, {"copy", KEEP_COPY}, {NULL, 0}};

static const struct option_row retrieval_rows[] = {
    OPTION_PATH(struct retrieval_settings, collection,
                "folder made by retro-index, or milvus://HOST:PORT/NAME (docs/milvus.md); empty: "
                "no collection"),
    OPTION_PATH(
        struct retrieval_settings, milvus_token_file,
        "file whose first line is the token for Milvus, a key or user:password; the environment's "
        "RETRO_MILVUS_TOKEN goes before it"),
    OPTION_PATH(struct retrieval_settings, milvus_authority,
                "file of certificates (PEM) that the one of a milvuss:// server is checked "
                "against; empty: the "
                "system's"),
    OPTION_CHOICE(
        struct retrieval_settings, milvus_consistency, MILVUS_STRONG, milvus_consistencies,
        "what a search in Milvus sees at least: strong: all that was acknowledged; session: all "
        "that this "
        "program changed; bounded: all of some seconds ago; eventually: what has arrived"),
    OPTION_DOUBLE(struct retrieval_settings, milvus_seconds, 5, 0.05, 3600,
                  "time limit of a search or a change in Milvus, all its attempts together"),
    OPTION_INT(struct retrieval_settings, milvus_attempts, 3, 1, 100,
               "attempts of a call of Milvus that fails"),
    OPTION_CHOICE(struct retrieval_settings, away, AWAY_FAIL, aways,
                  "what becomes of a request while the collection in Milvus does not answer: fail "
                  "with 503, or "
                  "write_without neighbours, which the answer says"),
    OPTION_CHOICE(struct retrieval_settings, documents, DOCUMENTS_AUTO, documents_accesses,
                  "what clients may do with the documents, over /v1/documents; auto: write where "
                  "the server listens on a "
                  "loopback address or asks for keys, else read"),
    OPTION_PATH(struct retrieval_settings, password_file,
                "file of passwords, one a line, that retro-index opens encrypted PDF files with; "
                "uploads are never opened with them"),
    OPTION_CHOICE(struct retrieval_settings, keep_files, KEEP_OFF, keeps,
                  "files of documents that /v1/documents/ID/file gives as they came; path: those "
                  "that retro-index read, from where they lie; copy: these, and uploads, of which "
                  "a copy is kept beside the collection"),
    OPTION_INT(struct retrieval_settings, compact_after, 20000, 0, 1 << 30,
               "chunks that were added or deleted after which the collection is compacted beside "
               "its use; 0: never"),
    OPTION_INT(struct retrieval_settings, upload_seconds, 60, 1, 86400,
               "seconds that reading an uploaded file may take, with all files in it"),
    OPTION_INT(struct retrieval_settings, upload_readers, 3, 1, 64,
               "uploaded files that are read at once, of each client one"),
    OPTION_BOOL(struct retrieval_settings, ocr, true,
                "pages of uploaded files that are pictures are read by OCR (docs/files.md#ocr)"),
    OPTION_TEXT(struct retrieval_settings, ocr_languages, "",
                "languages that OCR reads, as eng+deu+fra; empty: those that are installed"),
    OPTION_INT(struct retrieval_settings, page_seconds, 30, 1, 86400,
               "seconds that OCR may take for a page"),
    OPTION_PATH(struct retrieval_settings, embedder,
                "sentence-transformers folder (docs/embedders.md); empty: as the collection's "
                "MANIFEST says"),
    OPTION_PATH(
        struct retrieval_settings, picture_embedder,
        "folder of an embedder that reads pictures, for the pictures of the collection alone "
        "(docs/pictures.md#two-embedders-in-one-collection); empty: as the collection's MANIFEST "
        "says"),
    OPTION_CHOICE(struct retrieval_settings, embedder_dtype, MODEL_DTYPE_AUTO, dtypes,
                  "type the embedder's weights are kept in"),
    OPTION_INT(struct retrieval_settings, embedder_dimensions, 0, 0, 1 << 20,
               "numbers of a vector, the first of what the embedder gives (Matryoshka); 0: all"),
    OPTION_INT(struct retrieval_settings, embedder_tokens, 0, 0, 1 << 24,
               "tokens of a text that the embedder reads; 0: as many as its folder says"),
    OPTION_PATH(struct retrieval_settings, reranker,
                "folder of a cross-encoder that puts what a search finds in order "
                "(docs/search.md); empty: none"),
    OPTION_INT(struct retrieval_settings, rerank_candidates, 32, 1, 1024,
               "hits of a search that the reranker reads, at least as many as are wanted"),
    OPTION_INT(
        struct retrieval_settings, reranker_tokens, 0, 0, 1 << 24,
        "tokens of a query with a text that the reranker reads; 0: as many as its folder says"),
    OPTION_TEXT(struct retrieval_settings, reranker_instruction, "",
                "the task in words that Qwen3-Reranker judges texts by; empty: as its model card "
                "has it, for searches of the web"),
    OPTION_TEXT(
        struct retrieval_settings, query_prompt, "",
        "what stands before a text that is searched with; empty: as the embedder's folder says"),
    OPTION_TEXT(
        struct retrieval_settings, document_prompt, "",
        "what stands before a chunk that is embedded; empty: as the embedder's folder says"),
    OPTION_TEXT(
        struct retrieval_settings, device, "cpu",
        "where the index is searched: cpu, or cuda:N with FAISS' GPU part (make deps CUDA=1)"),
    OPTION_INT(struct retrieval_settings, max_k, 50, 1, 1024, "largest k a request may ask for"),
    OPTION_INT(struct retrieval_settings, max_neighbors, 0, 0, 1024,
               "neighbours of a chunk that cross attention has room for; 0: as many as the model "
               "was trained with, or "
               "retrieval.k where that is more"),
    OPTION_INT(struct retrieval_settings, max_excluded, 64, 0, 65536,
               "documents that a request may leave out, by exclude and by compare each"),
    OPTION_INT(struct retrieval_settings, max_metadata_values, 1000, 1, 1 << 20,
               "values of a document's metadata, each item of a list being one; documents with "
               "more are refused"),
    OPTION_INT(struct retrieval_settings, max_metadata_bytes, 65536, 2, 1 << 24,
               "bytes of a document's metadata as JSON; documents with more are refused"),
    OPTION_INT(struct retrieval_settings, max_filter_bytes, 262144, 2, 1 << 24,
               "bytes of a request's filter as JSON; longer ones are refused"),
    OPTION_TEXT(struct retrieval_settings, filter, "",
                "the documents that searches may find, a filter as JSON (docs/filters.md), beside "
                "those of the request "
                "and of its key; empty: all"),
    OPTION_CHOICE(struct retrieval_settings, grid, GRID_END, grids,
                  "chunks are aligned to the prompt's end or to its start"),
    OPTION_INT(struct retrieval_settings, min_every, 4, 1, 1 << 20,
               "least retrieval.every that a request may ask for"),
    OPTION_TEXT(struct retrieval_settings, template, "[{number}] {title}\n{text}\n\n",
                "a passage in the prompt, numbered as answers cite it"),
    OPTION_TEXT(struct retrieval_settings, again, "[{number}] {title}: see above\n\n",
                "a passage that is found again and stands in an earlier turn of the prompt"),
    OPTION_INT(
        struct retrieval_settings, prompt_tokens, 512, 1, 1 << 20,
        "tokens of all passages before one prompt; the least similar that do not fit are left out"),
    OPTION_INT(
        struct retrieval_settings, conversation_tokens, 8192, 0, 1 << 20,
        "tokens of the passages of earlier turns in a prompt (retrieval.conversation); where "
        "there are more, the oldest turns lose theirs until half is left"),
    OPTION_INT(struct retrieval_settings, rewrite_tokens, 64, 1, 4096,
               "with retrieval.query=rewritten: tokens that a rewritten question may have"),
    OPTION_INT(struct retrieval_settings, rewrite_context, 1024, 16, 1 << 20,
               "with retrieval.query=rewritten: tokens of the latest turns that the model reads "
               "for it, and those that the question may have"),
    OPTION_DOUBLE(struct retrieval_settings, order_distance, 0.05, 0, 1,
                  "with retrieval.order=stable: documents whose scores differ by no more than this "
                  "may stand in either order"),
    OPTION_INT(struct retrieval_settings, conversations_mb, 16, 1, 1 << 20,
               "memory of which passages conversations have read; those that were not used for "
               "longest are forgotten"),
    OPTION_INT(struct retrieval_settings, prompt_pictures, 2, 0, 64,
               "found pictures in one prompt that a model with a vision tower sees; of more it "
               "reads the captions"),
    OPTION_INT(struct retrieval_settings, threads, 0, 0, 1024,
               "CPU threads of embedding and search; 0: as model.threads"),
};
const struct option_section retrieval_section = {"retrieval", retrieval_rows,
                                                 (int)ARRAY_COUNT(retrieval_rows)};
