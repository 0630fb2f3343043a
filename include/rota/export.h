#pragma once

// Symbols are hidden unless marked; on ELF and Mach-O one attribute serves building and using.
#if defined(_WIN32)
#if defined(ROTA_BUILDING_SHARED)
#define ROTA_API __declspec(dllexport)
#elif defined(ROTA_USING_SHARED)
#define ROTA_API __declspec(dllimport)
#else
#define ROTA_API
#endif
#else
#define ROTA_API [[gnu::visibility("default")]]
#endif
