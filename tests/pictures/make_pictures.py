"""tests/pictures/make_pictures.py: writes the files that tests/unit/test_pictures.c decodes, resizes and prepares, and the
checksums of the values that they must become.

    python3 tests/pictures/make_pictures.py

The expected pixels are Pillow's (13.0.0), made RGB by transformers' rule (alpha over white), and torchvision's (0.29.2)
for the resizing that follows it. decoded.txt has a line a file: name, width, height, FNV-1a of the RGB rows.
resized.txt has a line a size: name, width, height, number of the filter, library, FNV-1a. prepared.txt has a line a
processor and picture: name, tiles, height, width, FNV-1a of the float32 values of transformers (5.23.0), and the
processor's file. No test needs this script.
"""

import importlib
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

HERE = pathlib.Path(__file__).parent
ORIENTATION = 0x112
rng = np.random.default_rng(7)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def waves(width, height, channels=3):
    y, x = np.mgrid[0:height, 0:width]
    rows = [127 + 120 * np.sin((x * (i + 1) + y * 2) / (9.0 + i) + i) * np.cos(y / (7.0 + i)) for i in range(channels)]
    noisy = np.stack(rows, -1) + rng.normal(0, 12, (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def color(width=41, height=33):
    return Image.fromarray(waves(width, height))


def with_alpha(width=41, height=33):
    return Image.fromarray(waves(width, height, 4))


def oriented(number):
    exif = Image.Exif()
    exif[ORIENTATION] = number
    return exif


def files():
    """(name, picture, options of Pillow's save)"""
    small = (17, 11)
    for subsampling in (0, 1, 2):
        yield f"color_{subsampling}.jpg", color(), {"quality": 85, "subsampling": subsampling}
    yield "progressive.jpg", color(), {"progressive": True, "quality": 50}
    yield "grey.jpg", color().convert("L"), {}
    yield "cmyk.jpg", Image.fromarray(waves(41, 33, 4), "CMYK"), {}
    yield "rgb.jpg", color(), {"keep_rgb": True}
    yield "restarts.jpg", color(), {"restart_marker_blocks": 3}
    for number in range(1, 9):
        yield f"turned_{number}.jpg", color(*small), {"exif": oriented(number)}
    yield "turned_6.png", color(*small), {"exif": oriented(6)}
    yield "turned_8.webp", color(*small), {"exif": oriented(8), "lossless": True}
    yield "color.png", color(), {}
    yield "alpha.png", with_alpha(), {}
    yield "grey.png", color().convert("L"), {}
    yield "grey_alpha.png", with_alpha().convert("LA"), {}
    yield "grey_key.png", color().convert("L"), {"transparency": 100}
    yield "grey_16.png", Image.fromarray(waves(41, 33, 1)[..., 0].astype(np.uint16) * 3), {}
    yield "bits_1.png", color().convert("1"), {}
    for colors in (3, 13, 200):
        yield f"palette_{colors}.png", color().quantize(colors), {}
    yield "palette_alpha.png", color().quantize(20), {"transparency": bytes(range(0, 200, 10))}
    keyed = color()
    yield "color_key.png", keyed, {"transparency": keyed.getpixel((3, 4))}
    yield "lossy.webp", color(), {}
    yield "lossless.webp", color(), {"lossless": True}
    yield "lossy_alpha.webp", with_alpha(), {}
    yield "lossless_alpha.webp", with_alpha(), {"lossless": True, "exact": True}
    yield "animated.webp", with_alpha(*small), {"save_all": True, "append_images": [with_alpha(*small)]}
    yield "color.gif", color(), {"interlace": 0}
    yield "interlaced.gif", color(), {"interlace": 1}
    yield "key.gif", color().quantize(32), {"transparency": 5}
    yield "animated.gif", color(*small), {"save_all": True, "append_images": [color(*small)]}
    yield "grey.gif", color(160, 90).convert("L"), {}


def png_of(width, height, depth, kind, interlaced, raw):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def wide_png(channels):
    """A PNG of 16 bits a channel, which Pillow reads and does not write."""
    rows = rng.integers(0, 65536, (9, 13, channels), dtype=np.uint16)
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    return png_of(13, 9, 16, {2: 4, 3: 2, 4: 6}[channels], False, raw)


def interlaced_png(channels):
    """A PNG in Adam7's seven passes, which Pillow reads and does not write."""
    rows = np.random.default_rng(11).integers(0, 256, (11, 13, channels), dtype=np.uint8)
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    raw = b"".join(b"\0" + row.tobytes() for top, left, down, right in passes for row in rows[top::down, left::right])
    return png_of(13, 11, 8, {1: 0, 3: 2, 4: 6}[channels], True, raw)


def small_frame():
    """A GIF whose first frame is a part of its canvas, with a palette of its own."""
    out = io.BytesIO()
    color(11, 7).quantize(16).save(out, "GIF", interlace=0)
    data = bytearray(out.getvalue())
    data[6:10] = (20).to_bytes(2, "little") + (15).to_bytes(2, "little")
    at = data.index(b",\0\0\0\0")
    data[at + 1:at + 5] = (4).to_bytes(2, "little") + (3).to_bytes(2, "little")
    return bytes(data)


def as_ycck(data):
    """The same numbers, which Adobe's marker says to be luminance and colour: Pillow does not write this."""
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1:]


def as_rgb(data):
    """transformers.image_transforms.convert_to_rgb after exif_transpose, without its imports."""
    image = Image.open(io.BytesIO(data))
    image.load()
    image = ImageOps.exif_transpose(image)
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return np.array(image.convert("RGB"))
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return np.array(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


def write_decoded():
    made = {}
    for name, image, options in files():
        out = io.BytesIO()
        image.save(out, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF"}[name.split(".")[1]], **options)
        made[name] = out.getvalue()
    for channels in (2, 3, 4):
        made[f"wide_{channels}.png"] = wide_png(channels)
    made["small_frame.gif"] = small_frame()
    for channels in (1, 3, 4):
        made[f"interlaced_{channels}.png"] = interlaced_png(channels)
    made["ycck.jpg"] = as_ycck(made["cmyk.jpg"])

    lines = []
    for name, data in made.items():
        (HERE / name).write_bytes(data)
        rows = as_rgb(data)
        lines.append(f"{name} {rows.shape[1]} {rows.shape[0]} {fnv(rows.tobytes())}\n")
    (HERE / "decoded.txt").write_text("".join(lines))


TORCHVISION = {
    0: InterpolationMode.NEAREST_EXACT, 1: InterpolationMode.LANCZOS, 2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
}


def write_resized():
    lines = []
    # The last two of tall.png are shapes for which Pillow 13 does the columns first.
    sizes = {"color.png": [(16, 16), (41, 20), (64, 33), (100, 90), (7, 31)], "tall.png": [(31, 24), (23, 20), (30, 8)]}
    Image.fromarray(waves(23, 190)).save(HERE / "tall.png")
    for name, list_of_sizes in sizes.items():
        image = Image.open(HERE / name)
        rows = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        for width, height in list_of_sizes:
            for number in range(6):
                pixels = np.array(image.resize((width, height), number))
                lines.append(f"{name} {width} {height} {number} 0 {fnv(pixels.tobytes())}\n")
                if number in TORCHVISION:
                    pixels = functional.resize(rows, [height, width], TORCHVISION[number], antialias=True)
                    pixels = pixels.permute(1, 2, 0).contiguous().numpy()
                    lines.append(f"{name} {width} {height} {number} 1 {fnv(pixels.tobytes())}\n")
    (HERE / "resized.txt").write_text("".join(lines))


CUT_28 = {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}
GRIDS = {"image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]}
PROCESSORS = {
    "CLIP": [CUT_28, {"size": {"shortest_edge": 20}, "crop_size": {"height": 33, "width": 28}},
             CUT_28 | {"resample": 1}, CUT_28 | {"do_rescale": False, "resample": 2}, CUT_28 | {"do_normalize": False},
             {"do_center_crop": False, "size": {"height": 30, "width": 26}},
             {"do_resize": False, "crop_size": {"height": 25, "width": 60}}],
    "Siglip": [{"size": {"height": 26, "width": 30}}, {"resample": 2, "size": {"height": 35, "width": 17}}],
    "ViT": [{"size": {"height": 26, "width": 30}}, {"resample": 0, "size": {"height": 35, "width": 17}}],
    "Llava": [CUT_28, CUT_28 | {"do_pad": True}],
    "LlavaNext": [CUT_28 | GRIDS],
    "GotOcr2": [{"size": {"height": 20, "width": 24}},
                {"crop_to_patches": True, "max_patches": 6, "size": {"height": 20, "width": 24}},
                {"crop_to_patches": True, "min_patches": 3, "max_patches": 40, "size": {"height": 14, "width": 14}}],
    "Gemma4": [{"max_soft_tokens": 70}, {"patch_size": 4, "resample": 2}, {"patch_size": 3, "pooling_kernel_size": 2, "max_soft_tokens": 140},
               {"patch_size": 2, "max_soft_tokens": 70, "do_rescale": False},
               {"patch_size": 2, "max_soft_tokens": 1120, "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]}],
    "Qwen2VL": [{"size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}},
                {"patch_size": 4, "size": {"shortest_edge": 2000, "longest_edge": 3000}},
                {"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 450}},
                {"patch_size": 2, "size": {"shortest_edge": 30000, "longest_edge": 40000}}],
    "Pixtral": [{}, {"patch_size": 28, "size": {"longest_edge": 1540}}, {"patch_size": 8, "size": {"longest_edge": 100}},
                {"patch_size": {"height": 6, "width": 6}, "size": {"longest_edge": 47}},
                {"patch_size": 4, "size": {"height": 20, "width": 90}, "resample": 2},
                {"patch_size": 7, "size": {"longest_edge": 33}, "do_normalize": False}],
}


def planes(processor, found):
    """The values as [tiles, 3, height, width]; Qwen2-VL's come as patches, twice in time, in blocks of merged ones, and Gemma
    4's as patches of pixels, filled up."""
    values = np.asarray(found["pixel_values"], np.float32)
    if "image_position_ids" in found:
        side, (columns, rows) = processor.patch_size, np.asarray(found["image_position_ids"])[0].max(0) + 1
        cells = values[0, :rows * columns].reshape(rows, columns, side, side, 3)
        return np.ascontiguousarray(cells.transpose(4, 0, 2, 1, 3).reshape(1, 3, rows * side, columns * side))
    if "image_grid_thw" not in found:
        return values[0] if values.ndim == 5 else values
    side, merge = processor.patch_size, processor.merge_size
    _, rows, columns = found["image_grid_thw"][0]
    values = values.reshape(rows // merge, columns // merge, merge, merge, 3, 2, side, side)[:, :, :, :, :, 0]
    return values.transpose(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * side, columns * side)


def write_prepared():
    folders = {"CLIP": "clip", "Siglip": "siglip", "ViT": "vit", "Llava": "llava", "LlavaNext": "llava_next",
               "GotOcr2": "got_ocr2", "Gemma4": "gemma4", "Qwen2VL": "qwen2_vl", "Pixtral": "pixtral"}
    lines = []
    for kind, list_of_keys in PROCESSORS.items():
        for back_end, module in (("Pil", "image_processing_pil_"), ("Fast", "image_processing_")):
            name = f"transformers.models.{folders[kind]}.{module}{folders[kind]}"
            found = importlib.import_module(name)
            processor_class = getattr(found, kind + "ImageProcessor" + ("Pil" if back_end == "Pil" else ""))
            for keys in list_of_keys:
                processor = processor_class(**keys)
                written = processor.to_dict() | {"image_processor_type": f"{kind}ImageProcessor{back_end}"}
                for picture in ("color.png", "tall.png"):
                    with Image.open(HERE / picture) as image:
                        values = planes(processor, processor(image, return_tensors="np"))
                    tiles, _, height, width = values.shape
                    lines.append(f"{picture} {tiles} {height} {width} {fnv(values.tobytes())} {json.dumps(written)}\n")
    (HERE / "prepared.txt").write_text("".join(lines))


if __name__ == "__main__":
    write_decoded()
    write_resized()
    write_prepared()
